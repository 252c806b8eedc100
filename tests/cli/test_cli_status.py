from __future__ import annotations

import io
import re
import subprocess
import sys

import msgspec
import pytest
from status_scenes import NOW, absent_and_streaming, thrash

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable
from moetuned.cli import main, status
from moetuned.decide.headline import headlines
from moetuned.schema.headline import StatusReport
from moetuned.schema.snapshot import Snapshot


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def answered(monkeypatch):
    monkeypatch.setattr(Client, "status", lambda _self: thrash())


def test_screen(answered, capsys):
    assert main.run(["status"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("glm: thrashing for 40 s: ")
    assert "glm is thrashing for 40 s" in out
    assert "\x1b" not in out


def test_json_is_the_snapshot(answered, capsys):
    assert main.run(["status", "--json"]) == 0
    decoded = msgspec.json.decode(capsys.readouterr().out, type=Snapshot)
    assert decoded == thrash()


def test_json_has_the_headlines(answered, capsys):
    assert main.run(["status", "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=StatusReport)
    assert [(one.backend, one.situation) for one in report.headlines][-1] == ("glm", "thrashing")


def test_the_first_line_is_whole_in_a_pipe_and_fits_a_terminal(answered, monkeypatch, capsys):
    monkeypatch.setattr(status.time, "time", lambda: NOW)
    monkeypatch.setenv("COLUMNS", "60")
    assert main.run(["status"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == headlines(thrash(), NOW)[0].line
    assert len(first) > 60
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    assert main.run(["status"]) == 0
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines())) <= 60


def test_one_backend_of_several(monkeypatch, capsys):
    monkeypatch.setattr(Client, "status", lambda _self: absent_and_streaming())
    assert main.run(["status", "dense"]) == 0
    out = capsys.readouterr().out
    assert "dense" in out
    assert "glm:" not in out
    assert "glm is" not in out
    assert main.run(["status", "dense", "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=StatusReport)
    assert [view.name for view in report.backends] == ["dense"]
    assert main.run(["status", "nope"]) == 1
    assert capsys.readouterr().err == "moetunectl: There is no backend 'nope'; there are: glm, dense.\n"


def test_events_of_others_are_not_shown():
    event = thrash().events[0]
    about = tuple(msgspec.structs.replace(event, backend=name) for name in (None, "glm", "dense"))
    kept = status.only(msgspec.structs.replace(absent_and_streaming(), events=about), "glm").events
    assert [one.backend for one in kept] == [None, "glm"]


def test_the_worst_is_shown_first(monkeypatch, capsys):
    both = absent_and_streaming()
    monkeypatch.setattr(Client, "status", lambda _self: msgspec.structs.replace(both, backends=both.backends[::-1]))
    assert main.run(["status"]) == 0
    out = capsys.readouterr().out
    assert (
        out.index("glm: down")
        < out.index("dense: all is well")
        < out.index("glm is not running")
        < out.index("dense is answering")
    )


def test_without_a_daemon_one_sentence_and_3(capsys, tmp_path):
    assert main.run(["status", "--socket", str(tmp_path / "none.sock")]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "is not running" in captured.err


def test_watch_redraws_survives_a_restart_and_ends_with_ctrl_c(monkeypatch):
    answers = iter([thrash(), DaemonUnreachable("moetuned is not running."), thrash()])
    naps = iter([None, None, KeyboardInterrupt()])

    def ask(_self):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def nap(seconds):
        assert seconds == status.WATCH_SECONDS
        if (end := next(naps)) is not None:
            raise end

    out = Terminal()
    monkeypatch.setattr(Client, "status", ask)
    monkeypatch.setattr(status.time, "sleep", nap)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["status", "--watch"]) == 0
    frames = out.getvalue().split("\x1b[H\x1b[J")[1:]
    assert len(frames) == 3
    assert "is not running" in frames[1]
    assert frames[0].count("\n") < 20  # never scrolls the terminal
    assert "more: moetunectl status" in frames[0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DaemonUnreachable("moetuned is not running."), 3),
        (DaemonRefused("You may not."), 4),
        (DaemonError("It said no."), 1),
    ],
)
def test_a_watch_that_cannot_begin_ends_as_a_look_does(monkeypatch, capsys, error, code):
    def ask(_self):
        raise error

    monkeypatch.setattr(Client, "status", ask)
    monkeypatch.setattr(status.time, "sleep", lambda _seconds: pytest.fail("it waits"))
    assert main.run(["status", "--watch"]) == code
    assert str(error) in capsys.readouterr().err


def test_a_watch_of_a_name_that_is_not_there_ends(answered, monkeypatch, capsys):
    monkeypatch.setattr(status.time, "sleep", lambda _seconds: pytest.fail("it waits"))
    assert main.run(["status", "--watch", "nobody"]) == 1
    assert "There is no backend 'nobody'" in capsys.readouterr().err


def test_a_terminal_without_utf_8_still_gets_a_screen(answered, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main.run(["status"]) == 0
    import sys

    sys.stdout.flush()
    assert b"glm is thrashing" in raw.getvalue()


def test_without_an_output_nothing_is_written_and_nothing_fails(answered, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert main.run(["status"]) == 0


def test_a_look_imports_nothing_that_it_does_not_need():
    code = (
        "import sys, moetuned.cli.main, moetuned.cli.status, moetuned.api.client, moetuned.cli.status_view\n"
        "print(*sorted(sys.modules), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.splitlines())
    for heavy in (
        "yaml",
        "psutil",
        "asyncio",
        "http.client",
        "unicodedata",
        "subprocess",
        "moetuned.schema.sample",
        "moetuned.schema.config",
    ):
        assert heavy not in imported
    assert not {
        name
        for name in imported
        if name.startswith(("moetuned.host", "moetuned.state", "moetuned.daemon", "moetuned.gguf"))
    }
