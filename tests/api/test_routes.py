from __future__ import annotations

import msgspec
import pytest
from api_examples import event

from moetuned.api.routes import ACTIONS, Caller, Routes
from moetuned.api.wire import Answer, Request
from moetuned.schema.event import KeptEvents
from moetuned.schema.explanation import Explanation, Explanations
from moetuned.schema.history import BackendHistory, Histories
from moetuned.schema.relief import ReliefPlan, ReliefPlans
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.verdict import Phase

TCP = Caller("tcp")
UNIX = Caller("unix", may_act=True)
READER = Caller("unix", may_act=False)


class Daemon:
    def __init__(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot
        self.calls: list[tuple[str, object]] = []
        self.asked: list[str | None] = []
        self.explained = 0
        self.remembered: list[tuple[int, str | None]] = []
        self.routes = Routes(
            lambda: self.snapshot, self._events, self._handle, self._explain, self._relief, history=self._remember
        )

    def _events(self, since):
        self.asked.append(since)
        return KeptEvents((event("1-2"),))

    def _handle(self, name, payload):
        self.calls.append((name, payload))
        return 202, {"said": name}

    def _relief(self):
        return ReliefPlans(tuple(ReliefPlan(name, "act", "ok", "nothing") for name in ("glm", "other")))

    def _remember(self, seconds, backend):
        self.remembered.append((seconds, backend))
        return Histories(100, 2, (BackendHistory("glm", {"tokens_per_second": (None, 0.9)}, (None, Phase.DECODE)),))

    def _explain(self):
        self.explained += 1
        return Explanations((Explanation("glm", 1.0), Explanation("other", 1.0)))

    def ask(self, method: str, target: str, caller: Caller = UNIX, body: bytes = b"", **headers: str) -> Answer:
        fields = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.routes.answer(Request(method, target, fields, body), caller)


@pytest.fixture
def daemon(snapshot):
    return Daemon(snapshot)


def error_of(answer: Answer) -> str:
    value = msgspec.json.decode(answer.body)
    assert list(value) == ["error"]
    return value["error"]


def test_status_is_the_snapshot(daemon, snapshot):
    answer = daemon.ask("GET", "/v1/status", TCP)
    assert answer.status == 200
    assert answer.content_type == "application/json"
    decoded = msgspec.json.decode(answer.body, type=Snapshot)
    assert decoded.backends[0].verdict == snapshot.backends[0].verdict
    assert decoded.backends[0].signals["refault_ratio"] is None  # not a number is unknown


def test_a_process_of_a_name_that_is_no_text_spoils_no_status(snapshot):
    """Anybody may start one in a directory of such a name."""
    named = msgspec.structs.replace(snapshot.backends[0], name="/d\udcff/model.gguf")
    daemon = Daemon(msgspec.structs.replace(snapshot, backends=(named, *snapshot.backends[1:])))
    answer = daemon.ask("GET", "/v1/status", TCP)
    assert answer.status == 200
    assert msgspec.json.decode(answer.body, type=Snapshot).backends[0].name == "/d\ufffd/model.gguf"
    assert daemon.ask("GET", "/metrics", TCP).status == 200


def test_an_explanation_is_worked_out_when_it_is_asked_for(daemon):
    daemon.ask("GET", "/v1/status")
    assert daemon.explained == 0
    answer = daemon.ask("GET", "/v1/explain", TCP)
    assert [one.backend for one in msgspec.json.decode(answer.body, type=Explanations).backends] == ["glm", "other"]
    one = daemon.ask("GET", "/v1/explain?backend=other", READER)
    assert [one.backend for one in msgspec.json.decode(one.body, type=Explanations).backends] == ["other"]
    assert daemon.explained == 2
    refused = daemon.ask("GET", "/v1/explain?backend=none")
    assert (refused.status, error_of(refused)) == (404, "There is no backend 'none'; there are: glm, other.")
    daemon.snapshot = None
    assert daemon.ask("GET", "/v1/explain").status == 503


def test_relief_is_planned_when_it_is_asked_for(daemon):
    answer = daemon.ask("GET", "/v1/relief", TCP)
    assert [one.backend for one in msgspec.json.decode(answer.body, type=ReliefPlans).backends] == ["glm", "other"]
    one = daemon.ask("GET", "/v1/relief?backend=other", READER)
    assert [one.backend for one in msgspec.json.decode(one.body, type=ReliefPlans).backends] == ["other"]
    assert daemon.ask("GET", "/v1/relief?backend=none").status == 404
    daemon.snapshot = None
    assert daemon.ask("GET", "/v1/relief").status == 503


def test_history(daemon):
    answer = daemon.ask("GET", "/v1/history", TCP)
    assert answer.status == 200
    assert msgspec.json.decode(answer.body) == {
        "at_seconds": 100,
        "step_seconds": 2,
        "backends": [
            {
                "backend": "glm",
                "signals": {"tokens_per_second": [None, 0.9]},
                "phase": [None, "decode"],
                "paging": [],
                "memory": [],
            }
        ],
    }
    assert daemon.ask("GET", "/v1/history?seconds=30&backend=glm", READER).status == 200
    assert daemon.ask("GET", "/v1/history?seconds=600").status == 200
    assert daemon.remembered == [(600, None), (30, "glm"), (600, None)]
    for bad in ("0", "601", "-1", "1.5", "x", "", "99999999999999999999", "%D9%A3"):
        refused = daemon.ask("GET", f"/v1/history?seconds={bad}")
        assert refused.status == 400
        assert "from 1 to 600" in error_of(refused)
    unknown = daemon.ask("GET", "/v1/history?backend=none")
    assert (unknown.status, error_of(unknown)) == (404, "There is no backend 'none'; there are: glm.")
    assert daemon.ask("GET", "/v1/history?since=1").status == 400
    assert daemon.ask("POST", "/v1/history").status == 405
    daemon.snapshot = None
    assert daemon.ask("GET", "/v1/history").status == 503
    assert len(daemon.remembered) == 3


def test_a_snapshot_is_rendered_once(daemon, snapshot):
    first = daemon.ask("GET", "/metrics")
    assert daemon.ask("GET", "/metrics") is first
    daemon.snapshot = msgspec.structs.replace(snapshot, at_seconds=101.0)
    assert daemon.ask("GET", "/metrics") is not first


def test_metrics_come_in_the_format_that_is_asked_for(daemon):
    text = daemon.ask("GET", "/metrics", TCP)
    open_text = daemon.ask("GET", "/metrics", TCP, accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert text.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert open_text.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert open_text.body.endswith(b"# EOF\n")
    assert b"# EOF" not in text.body
    assert daemon.ask("GET", "/metrics", TCP).body is text.body
    assert daemon.ask("GET", "/v1/status", accept="application/openmetrics-text").content_type == "application/json"


def test_events(daemon):
    answer = daemon.ask("GET", "/v1/events?since=1-1")
    assert msgspec.json.decode(answer.body)["events"][0]["id"] == "1-2"
    daemon.ask("GET", "/v1/events")
    assert daemon.asked == ["1-1", None]


def test_front_page_names_every_path_in_one_line(daemon):
    text = daemon.ask("GET", "/").body.decode()
    assert text.count("\n") == 1
    for path in ("/healthz", "/metrics", "/v1/status", "/v1/events", *(f"POST /v1/{name}" for name in ACTIONS)):
        assert path in text


def test_before_the_first_look():
    daemon = Daemon(None)
    for path in ("/healthz", "/v1/status", "/metrics"):
        assert daemon.ask("GET", path).status == 503
    assert daemon.ask("GET", "/").status == 200


@pytest.mark.parametrize(
    ("method", "target", "status", "word"),
    [
        ("GET", "/nope", 404, "/nope"),
        ("GET", "/v1/../metrics", 404, "no "),
        ("GET", "/v1/status?x=1", 400, "'x'"),
        ("GET", "/v1/events?since=a%2Fb", 400, "event id"),
        ("GET", "/v1/events?since=1&since=2", 400, "twice"),
        ("GET", "/v1/events?since", 400, "query"),
        ("GET", "/v1/events?" + "&".join(f"a{i}=1" for i in range(20)), 400, "query"),
        ("GET", "http://evil.example/", 400, "no path"),
        ("GET", "*", 400, "no path"),
        ("GET", "/v1/warm", 405, "POST"),
        ("DELETE", "/v1/status", 405, "DELETE"),
        ("POST", "/v1/status", 405, "GET"),
        ("POST", "/v1/nope", 404, "nope"),
        ("POST", "/warm", 404, "/warm"),
    ],
)
def test_bad_requests_get_one_sentence(daemon, method, target, status, word):
    answer = daemon.ask(method, target)
    assert answer.status == status
    assert word in error_of(answer)
    assert daemon.calls == []
    if status == 405:
        assert any(name == "Allow" for name, _ in answer.headers)


def test_actions_reach_the_handler(daemon):
    answer = daemon.ask("POST", "/v1/warm", body=b'{"backend": "glm"}')
    assert (answer.status, answer.body) == (202, b'{"said":"warm"}\n')
    assert daemon.ask("POST", "/v1/reload").status == 202
    assert daemon.calls == [("warm", {"backend": "glm"}), ("reload", {})]


def test_tuning_by_hand(daemon):
    assert daemon.ask("POST", "/v1/tune", body=b'{"do": "rollback"}').status == 202
    assert daemon.ask("POST", "/v1/tune", body=b'{"do": "apply", "profile": "observe", "journal": "/j"}').status == 202
    assert daemon.calls == [
        ("tune", {"do": "rollback", "config": None, "profile": None, "journal": None}),
        ("tune", {"do": "apply", "config": None, "profile": "observe", "journal": "/j"}),
    ]
    for body in (b"", b"{}", b'{"do": "destroy"}', b'{"do": "apply", "force": true}', b'{"do": "apply", "config": 7}'):
        assert daemon.ask("POST", "/v1/tune", body=body).status == 400
    assert daemon.ask("POST", "/v1/tune", READER, b'{"do": "apply"}').status == 403
    assert daemon.ask("POST", "/v1/tune", TCP, b'{"do": "apply"}').status == 405
    assert daemon.ask("GET", "/v1/tune").status == 405
    assert len(daemon.calls) == 2


def test_a_backend_by_hand(daemon):
    body = b'{"backend": "glm", "do": "restart", "context": 4096, "now": true}'
    assert daemon.ask("POST", "/v1/backend", body=body).status == 202
    assert daemon.ask("POST", "/v1/backend", body=b'{"backend": "glm", "do": "pause"}').status == 202
    assert daemon.calls == [
        ("backend", {"backend": "glm", "do": "restart", "context": 4096, "now": True, "dry_run": False}),
        ("backend", {"backend": "glm", "do": "pause", "context": None, "now": False, "dry_run": False}),
    ]
    for bad in (
        b"{}", b'{"do": "restart"}', b'{"backend": "glm"}', b'{"backend": "glm", "do": "kill"}',
        b'{"backend": "glm", "do": "restart", "context": 255}', b'{"backend": "glm", "do": "restart", "context": "8192"}',
        b'{"backend": "glm", "do": "restart", "context": 16777217}', b'{"backend": "glm", "do": "restart", "now": 1}',
        b'{"backend": "glm", "do": "restart", "command": ["sh"]}',
    ):  # fmt: skip
        assert daemon.ask("POST", "/v1/backend", body=bad).status == 400
    assert daemon.ask("POST", "/v1/backend", READER, body).status == 403
    assert daemon.ask("POST", "/v1/backend", TCP, body).status == 405
    assert daemon.ask("GET", "/v1/backend").status == 405
    assert len(daemon.calls) == 2


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"backend": 1}', b'{"backend": "a", "x": 1}', b"\xff\xfe", b"null"]
)
def test_bad_payloads_never_reach_the_handler(daemon, body):
    answer = daemon.ask("POST", "/v1/warm", body=body)
    assert answer.status == 400
    assert "/v1/warm" in error_of(answer)
    assert daemon.calls == []


def test_actions_need_credentials_and_the_socket(daemon):
    assert daemon.ask("POST", "/v1/reload", READER).status == 403
    assert daemon.ask("POST", "/v1/reload", TCP).status == 405
    assert daemon.calls == []


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1:9843", "127.0.0.1.evil", "", "[::2]", "localhost@evil"]
)
def test_foreign_hosts_are_refused_on_tcp(daemon, host):
    answer = daemon.ask("GET", "/v1/status", TCP, host=host)
    assert answer.status == 421
    assert "loopback" in error_of(answer)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9843", "[::1]:8000"])
def test_own_hosts_are_served_on_tcp(daemon, host):
    assert daemon.ask("GET", "/v1/status", TCP, host=host).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"},
    ],
)
def test_other_origins_are_refused_everywhere(daemon, headers):
    assert daemon.ask("GET", "/v1/status", TCP, **headers).status == 403
    assert daemon.ask("POST", "/v1/reload", UNIX, **headers).status == 403
    assert daemon.calls == []


def test_own_origin_and_a_followed_link_are_served(daemon):
    assert daemon.ask("GET", "/", TCP, host="localhost:9843", origin="http://localhost:9843").status == 200
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert daemon.ask("GET", "/", TCP, **link).status == 200


def test_a_fault_of_ours_is_a_500_and_is_logged(snapshot, caplog):
    def broken(_since):
        raise RuntimeError("boom")

    routes = Routes(lambda: snapshot, broken, lambda name, payload: (200, {}))
    answer = routes.answer(Request("GET", "/v1/events", {}), UNIX)
    assert answer.status == 500
    assert b"boom" not in answer.body
    assert "boom" in caplog.text
