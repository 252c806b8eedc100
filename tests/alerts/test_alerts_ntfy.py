from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from fakes.hook_server import HookServer, status
from fakes.sink_events import event, hostile
from hypothesis import given
from hypothesis import strategies as st

from moetuned.alerts import ntfy
from moetuned.alerts.ntfy import message_of, send
from moetuned.schema.alert import NtfyAlert
from moetuned.schema.event import EventName

TOPIC = NtfyAlert(url="https://ntfy.sh/secret-topic")


@pytest.fixture
def server() -> Iterator[HookServer]:
    # What ntfy answers to a message that it took.
    server = HookServer(status(200, {"Content-Type": "application/json"}, b'{"id":"xE73Iyuabi","event":"message"}'))
    yield server
    server.close()


def test_a_message_is_posted_as_json_to_the_servers_root(server: HookServer) -> None:
    (result,) = send(event(), NtfyAlert(url=f"{server.url}/secret-topic", click="https://grafana.example.org/d/1"))
    assert result.ok
    assert "secret-topic" not in str(result)
    (taken,) = server.taken
    assert taken.path == "/"
    assert taken.headers["Content-Type"] == "application/json"
    assert "Authorization" not in taken.headers
    assert msgspec.json.decode(taken.body) == {
        "topic": "secret-topic",
        "title": "glm: thrashing",
        "message": "glm thrashes: close firefox\nrefaults 90 %",
        "priority": 4,
        "tags": ["warning", "thrash_begin"],
        "click": "https://grafana.example.org/d/1",
        "sequence_id": "0006a0b1c2d3e4-000001",
    }


def test_a_server_below_a_path(server: HookServer) -> None:
    assert send(event(), NtfyAlert(url=f"{server.url}/push/topic/"))[0].ok
    assert server.taken[0].path == "/push/"
    assert msgspec.json.decode(server.taken[0].body)["topic"] == "topic"


@pytest.mark.parametrize(
    ("name", "priority", "sign"),
    [
        (EventName.BACKEND_HUNG, 5, "rotating_light"),
        (EventName.MEMORY_NEAR_LIMIT, 4, "warning"),
        (EventName.BACKEND_RECOVERED, 3, "white_check_mark"),
    ],
)
def test_the_priority_is_how_bad_it_is(name: EventName, priority: int, sign: str) -> None:
    message = message_of(event(name), TOPIC, "topic")
    assert (message["priority"], message["tags"]) == (priority, [sign, name.value])


def test_the_config_may_say_another_priority_also_for_all_kinds() -> None:
    config = msgspec.structs.replace(TOPIC, priority={EventName.BACKEND_DOWN: "low", EventName.BACKEND_HUNG: "high"})
    assert message_of(event(EventName.BACKEND_OOM_KILLED), config, "t")["priority"] == 2
    assert message_of(event(EventName.BACKEND_HUNG), config, "t")["priority"] == 4
    assert message_of(event(EventName.RELIEF_EXHAUSTED), config, "t")["priority"] == 5


def test_an_end_takes_the_place_of_what_it_ends_and_a_new_begin_does_not() -> None:
    begin = message_of(event(id="a-1"), TOPIC, "t")
    end = message_of(event(EventName.THRASH_END, id="a-2", ended=("a-1",)), TOPIC, "t")
    again = message_of(event(id="a-3"), TOPIC, "t")
    assert begin["sequence_id"] == end["sequence_id"] == "a-1"
    assert again["sequence_id"] == "a-3"
    assert message_of(event(EventName.THRASH_END, id="a-4"), TOPIC, "t")["sequence_id"] == "a-4", (
        "it is not known of what"
    )
    assert "sequence_id" not in message_of(event(id="no sequence/id"), TOPIC, "t")


def test_another_script_arrives_as_it_is(server: HookServer) -> None:
    assert send(event(backend="größer-模型", message="größer ✓"), NtfyAlert(url=f"{server.url}/t"))[0].ok
    message = msgspec.json.decode(server.taken[0].body)
    assert message["title"] == "größer-模型: thrashing"
    assert message["message"].startswith("größer ✓")


@given(st.sampled_from(EventName), st.text(), st.text(), st.text())
def test_any_event_is_within_the_servers_limits(name: EventName, message: str, backend: str, identifier: str) -> None:
    posted = message_of(event(name, message=message, backend=backend, id=identifier), TOPIC, "t")
    assert len(str(posted["message"]).encode()) <= 4096
    assert len(str(posted["title"]).encode()) <= 1024
    assert len(msgspec.json.encode(posted)) <= 8192


def test_hostile_texts_add_nothing() -> None:
    assert set(message_of(hostile(), TOPIC, "t")) == {"topic", "title", "message", "priority", "tags"}


def test_the_token_goes_into_the_header_and_nowhere_else(server: HookServer, tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text("tk_hunter2\n")
    token.chmod(0o600)
    server.behaviours = [status(403, {}, b'{"code":40301,"error":"forbidden"}')]
    config = NtfyAlert(url=f"{server.url}/t", token_file=str(token))
    (result,) = send(event(), config)
    assert server.taken[0].headers["Authorization"] == "Bearer tk_hunter2"
    assert (result.ok, result.retry) == (False, False)
    assert "hunter2" not in str(result)
    for text in ("", "a b\n", "a\nb\n"):
        token.write_text(text)
        (result,) = send(event(), config)
        assert (result.ok, result.retry, len(server.taken)) == (False, True, 1)
        assert "holds no token" in result.detail
    token.chmod(0o640)
    assert "others may read it" in send(event(), config)[0].detail


@pytest.mark.parametrize(("code", "retry"), [(429, True), (500, True), (507, True), (400, False), (413, False)])
def test_what_the_server_says_is_tried_again_or_not(server: HookServer, code: int, retry: bool) -> None:
    server.behaviours = [status(code)]
    (result,) = send(event(), NtfyAlert(url=f"{server.url}/t"))
    assert (result.ok, result.retry) == (False, retry)


def test_whom_it_tells_says_no_topic() -> None:
    assert ntfy.target(TOPIC) == "https://ntfy.sh/…"


def test_that_a_restart_failed_is_a_message_of_its_own_which_makes_a_sound() -> None:
    told = message_of(event(EventName.BACKEND_NOT_RESTARTED, id="a-2", ended=("a-1",)), TOPIC, "t")
    assert (told["sequence_id"], told["title"]) == ("a-2", "glm: not restarted")
