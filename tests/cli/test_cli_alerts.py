"""moetunectl alerts list and test, over a client that answers as the daemon does."""

from __future__ import annotations

import msgspec
import pytest

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.cli import alerts_test, main
from moetuned.schema.alert_view import AlertsAnswer, AlertSinkView, AlertTestAnswer, DeliveryView
from moetuned.schema.event import EventName


def view(name: str, tested: DeliveryView | None = None, timeout: float = 10.0) -> AlertSinkView:
    return AlertSinkView(name, "webhook", "https://example.org/…", tested=tested, timeout_seconds=timeout)


def delivery(event_id: str, *, ok: bool = True) -> DeliveryView:
    return DeliveryView(EventName.TEST, event_id, ok, "answered", 1.0, 0.5)


class FakeDaemon:
    def __init__(self, names: tuple[str, ...], *answers: tuple[AlertSinkView, ...]) -> None:
        self.names = names
        self.answers = list(answers)
        self.tried: list[str | None] = []

    def alerts(self) -> AlertsAnswer:
        return AlertsAnswer(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def test_alerts(self, sink: str | None) -> AlertTestAnswer:
        self.tried.append(sink)
        if sink is not None and sink not in self.names:
            raise DaemonError(f"there is no alert sink {sink!r}")
        return AlertTestAnswer("1-t", self.names if sink is None else (sink,))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):
    def use(daemon: FakeDaemon) -> FakeDaemon:
        monkeypatch.setattr(Client, "alerts", lambda _self: daemon.alerts())
        monkeypatch.setattr(Client, "test_alerts", lambda _self, sink=None: daemon.test_alerts(sink))
        return daemon

    monkeypatch.setattr(alerts_test, "_POLL_SECONDS", 0.0)
    return use


def test_list(use, capsys: pytest.CaptureFixture[str]) -> None:
    use(FakeDaemon((), (view("a"), view("b"))))
    assert main.run(["alerts", "list"]) == 0
    assert "a (webhook)  https://example.org/…" in capsys.readouterr().out
    assert main.run(["alerts", "list", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=AlertsAnswer).sinks == (view("a"), view("b"))


def test_a_test_waits_for_its_own_results(use, capsys: pytest.CaptureFixture[str]) -> None:
    earlier, now = delivery("1-0", ok=False), delivery("1-t")
    daemon = use(
        FakeDaemon(
            ("a", "b"),
            (view("a", earlier), view("b")),
            (view("a", now), view("b", earlier)),
            (view("a", now), view("b", now), view("c")),
        )
    )
    assert main.run(["alerts", "test"]) == 0
    assert daemon.tried == [None]
    assert capsys.readouterr().out == "a  ok      answered (0.5 s)\nb  ok      answered (0.5 s)\n"


def test_one_that_failed_is_the_exit_code(use, capsys: pytest.CaptureFixture[str]) -> None:
    use(FakeDaemon(("a", "b"), (view("a", delivery("1-t")), view("b", delivery("1-t", ok=False)))))
    assert main.run(["alerts", "test"]) == 1
    assert "b  failed  answered" in capsys.readouterr().out
    assert main.run(["alerts", "test", "a"]) == 0
    assert capsys.readouterr().out == "a  ok      answered (0.5 s)\n"


def test_json_is_an_object_a_sink(use, capsys: pytest.CaptureFixture[str]) -> None:
    use(FakeDaemon(("a",), (view("a", delivery("1-t")),)))
    assert main.run(["alerts", "test", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["sink"], told["kind"], told["result"]["ok"]) == ("a", "webhook", True)


def test_one_that_says_nothing_is_left_some_day(use, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(alerts_test, "_EXTRA_SECONDS", -1.0)
    use(FakeDaemon(("a",), (view("a", timeout=0.0),)))
    assert main.run(["alerts", "test"]) == 1
    assert "a  no answer" in capsys.readouterr().out


def test_no_sink_and_one_that_is_not_there(use, capsys: pytest.CaptureFixture[str]) -> None:
    use(FakeDaemon((), ()))
    assert main.run(["alerts", "test"]) == 1
    assert "There is no alert sink" in capsys.readouterr().err
    assert main.run(["alerts", "test", "phone"]) == 1
    assert "there is no alert sink 'phone'" in capsys.readouterr().err


def test_without_a_daemon_it_says_what_to_do(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["alerts", "list"], ["alerts", "test"]):
        assert main.run([*words, "--socket", str(tmp_path / "api.sock")]) == 3
        assert "moetuned is not running" in capsys.readouterr().err
