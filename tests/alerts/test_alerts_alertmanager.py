from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from fakes.hook_server import HookServer, status
from fakes.sink_events import event, hostile
from hypothesis import given
from hypothesis import strategies as st

from moetuned.alerts import alertmanager
from moetuned.alerts.alertmanager import alerts_of, send
from moetuned.schema.alert import AlertmanagerAlert
from moetuned.schema.event import ENDS, EventName, begun_by, has_end
from moetuned.schema.severity import SEVERITY

NOW = 1_800_000_100.0


@pytest.fixture
def server() -> Iterator[HookServer]:
    server = HookServer()
    yield server
    server.close()


def only(name: EventName, **changes: object) -> dict:
    (alert,) = alerts_of(event(name, **changes), {}, "box", NOW)
    return alert


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_what_begins_fires_from_then_and_lasts_from_now() -> None:
    alert = only(EventName.THRASH_BEGIN)
    assert alert["labels"] == {
        "alertname": "MoetunedThrashing",
        "severity": "warning",
        "backend": "glm",
        "instance": "box",
    }
    assert alert["annotations"] == {
        "summary": "glm: thrashing",
        "description": "glm thrashes: close firefox\nrefaults 90 %",
        "event": "thrash_begin",
        "event_id": "0006a0b1c2d3e4-000001",
        "runbook": "moetunectl explain; docs/alerts/thrash_begin.md",
    }
    assert alert["startsAt"] == "2027-01-15T08:00:00.250Z"
    assert seconds(alert["endsAt"]) == NOW + 900


@pytest.mark.parametrize("end", ENDS)
def test_an_end_resolves_all_that_it_ends_with_their_very_labels(end: EventName) -> None:
    resolved = alerts_of(event(end), {"team": "ml"}, "box", NOW)
    fired = [alert for name in begun_by(end) for alert in alerts_of(event(name), {"team": "ml"}, "box", NOW)]
    assert [each["labels"] for each in resolved] == [each["labels"] for each in fired]
    assert all(each["endsAt"] == "2027-01-15T08:00:00.250Z" and "startsAt" not in each for each in resolved)


@pytest.mark.parametrize("name", [EventName.BACKEND_NOT_RESTARTED, EventName.BACKEND_DOWN])
def test_what_tells_that_a_restart_failed_fires_and_resolves_the_restart(name: EventName) -> None:
    fires, resolved = alerts_of(event(name, ended=("a-1",)), {}, "box", NOW)
    assert fires == only(name)
    assert resolved["labels"] == only(EventName.BACKEND_RESTARTING)["labels"]
    assert (resolved["endsAt"], "startsAt" in resolved) == ("2027-01-15T08:00:00.250Z", False)


def test_the_kinds_of_an_event_are_one_alert() -> None:
    assert only(EventName.BACKEND_OOM_KILLED)["labels"] == only(EventName.BACKEND_DOWN)["labels"]
    assert only(EventName.BACKEND_OOM_KILLED)["annotations"]["event"] == "backend_oom_killed"


def test_everything_that_begins_has_a_name() -> None:
    begun = {name for each in EventName for name in begun_by(each)}
    assert set(alertmanager.ALERT_NAMES) == begun
    assert len(set(alertmanager.ALERT_NAMES.values())) == len(begun)


def test_what_has_no_end_fires_for_an_hour() -> None:
    for name in EventName:
        if name not in ENDS and not has_end(name) and name is not EventName.TEST:
            assert seconds(only(name)["endsAt"]) == NOW + 3600


def test_a_test_is_over_soon() -> None:
    assert seconds(only(EventName.TEST)["endsAt"]) == NOW + 60


def test_a_begin_that_comes_late_still_fires() -> None:
    (alert,) = alerts_of(event(), {}, "box", NOW + 86400)
    assert alert["startsAt"] == "2027-01-15T08:00:00.250Z"
    assert seconds(alert["endsAt"]) == NOW + 86400 + 900


def test_nothing_begins_in_the_future() -> None:
    assert seconds(only(EventName.THRASH_BEGIN, wall_seconds=NOW + 50)["startsAt"]) == NOW


def test_the_machine_is_no_backend() -> None:
    assert "backend" not in only(EventName.TUNING_DRIFTED, backend=None)["labels"]


def test_labels_of_the_config_add_and_name_the_instance_but_change_nothing_else() -> None:
    (alert,) = alerts_of(event(), {"team": "ml", "instance": "other", "severity": "none", "alertname": "x"}, "box", NOW)
    assert alert["labels"] == {
        "alertname": "MoetunedThrashing", "severity": "warning", "backend": "glm", "instance": "other", "team": "ml",
    }  # fmt: skip


@given(st.sampled_from(EventName), st.text(), st.text(), st.floats(), st.floats(0, 2e9))
def test_any_event_makes_alerts_whose_end_is_after_their_begin(
    name: EventName, message: str, backend: str, wall: float, now: float
) -> None:
    told = event(name, message=message, backend=backend, wall_seconds=wall)
    for alert in msgspec.json.decode(msgspec.json.encode(alerts_of(told, {}, "box", now))):
        assert seconds(alert.get("startsAt", alert["endsAt"])) <= seconds(alert["endsAt"])
        assert all("\n" not in value for value in alert["labels"].values())
        assert len(str(alert)) < 10_000


def test_each_member_of_a_cluster_gets_it(server: HookServer) -> None:
    other = HookServer()
    try:
        config = AlertmanagerAlert(urls=[server.url, f"{other.url}/prefix/"], labels={"team": "ml"})
        assert [(each.target, each.ok) for each in send(event(), config)] == [
            (server.url, True),
            (f"{other.url}/…", True),
        ]
    finally:
        other.close()
    (taken,), (same,) = server.taken, other.taken
    assert (taken.path, same.path) == ("/api/v2/alerts", "/prefix/api/v2/alerts")
    assert taken.headers["Content-Type"] == "application/json"
    (alert,) = msgspec.json.decode(taken.body)
    assert alert["labels"]["instance"] == socket.gethostname()
    assert alert["labels"]["team"] == "ml"


def test_a_member_that_is_away_is_told_and_holds_up_nobody(server: HookServer) -> None:
    away, here = send(event(), AlertmanagerAlert(urls=["http://127.0.0.1:1", server.url], timeout="30s"))
    assert (away.ok, away.retry, here.ok) == (False, False, True)
    assert away.target == "http://127.0.0.1:1"
    assert re.search("refused", away.detail)


def test_where_none_takes_it_it_is_tried_again(server: HookServer) -> None:
    server.behaviours = [status(503, {"Retry-After": "7"})]
    results = send(event(), AlertmanagerAlert(urls=["http://127.0.0.1:1", server.url], timeout="30s"))
    assert [(each.ok, each.retry) for each in results] == [(False, True), (False, True)]
    assert results[1].retry_after_seconds == 7.0


def test_a_member_that_hangs_takes_its_share_of_the_time_only(server: HookServer) -> None:
    other = HookServer(server.hang)
    other.behaviours = [other.hang]
    try:
        hung, here = send(event(), AlertmanagerAlert(urls=[other.url, server.url], timeout="2s"))
    finally:
        other.close()
    assert (hung.ok, here.ok) == (False, True)
    assert "no answer in time" in hung.detail


def test_what_it_does_not_want_is_told_in_its_words_and_not_tried_again(server: HookServer) -> None:
    server.behaviours = [status(400, {"Content-Type": "application/json"}, b'"invalid label set:\nx"')]
    (result,) = send(event(), AlertmanagerAlert(urls=[server.url]))
    assert (result.ok, result.retry) == (False, False)
    assert result.detail.endswith('answered 400 Bad Request: "invalid label set: x"')


def test_secrets_go_into_the_header_and_nowhere_else(server: HookServer, tmp_path) -> None:
    secrets = tmp_path / "headers"
    secrets.write_text("Authorization: Bearer hunter2\n")
    secrets.chmod(0o600)
    server.behaviours = [status(401)]
    (result,) = send(event(), AlertmanagerAlert(urls=[server.url], headers_file=str(secrets)))
    assert server.taken[0].headers["Authorization"] == "Bearer hunter2"
    assert (result.ok, result.retry) == (False, False)
    assert "hunter2" not in str(result)
    secrets.chmod(0o644)
    (result,) = send(event(), AlertmanagerAlert(urls=[server.url], headers_file=str(secrets)))
    assert (result.ok, result.retry, len(server.taken)) == (False, True, 1)
    assert "others may read it" in result.detail
    secrets.chmod(0o600)
    secrets.write_text("hunter2")
    (result,) = send(event(), AlertmanagerAlert(urls=[server.url], headers_file=str(secrets)))
    assert "line 1 is no header" in result.detail
    assert "hunter2" not in str(result)


def test_hostile_texts_are_data(server: HookServer) -> None:
    assert send(hostile(), AlertmanagerAlert(urls=[server.url]))[0].ok
    (alert,) = msgspec.json.decode(server.taken[0].body)
    assert set(alert) == {"labels", "annotations", "startsAt", "endsAt"}


def test_severities_are_those_of_the_table() -> None:
    for name in EventName:
        for alert, begun in zip(alerts_of(event(name), {}, "box", NOW), begun_by(name), strict=True):
            assert alert["labels"]["severity"] == SEVERITY[begun]


def test_where_it_delivers_to() -> None:
    config = AlertmanagerAlert(urls=["http://a:9093", "https://b/secret"])
    assert alertmanager.target(config) == "http://a:9093, https://b/…"


@pytest.mark.parametrize("name", EventName)
def test_the_page_that_an_alert_names_is_there(name: EventName) -> None:
    for alert in alerts_of(event(name), {}, "box", NOW):
        page = alert["annotations"]["runbook"].partition("; ")[2]
        assert (Path(__file__).parents[2] / page).is_file()
