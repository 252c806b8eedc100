from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli import completion_values
from moetuned.cli.completion_values import backend_names, plain, unit_names


@contextmanager
def answering(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Somebody at this socket who does that with the one connection that comes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def context(path: Path) -> click.Context:
    found = click.Context(click.Command("x"))
    found.params["socket"] = str(path)
    return found


def says(body: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        assert connection.recv(1 << 16).startswith(b"GET /v1/status ")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    return answer


def status(*names: str) -> bytes:
    return json.dumps({"backends": [{"name": name, "verdict": None} for name in names], "more": 1}).encode()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (status("qwen", "glm"), ["glm", "qwen"]),
        (status("glm", "$(reboot)", "a b", "-x", "a;b", "`id`", "a\nb", "é", "x" * 40), ["glm", "x" * 40]),
        (status(), []),
        (b"rubbish", []),
        (b'{"backends": [{"name": 7}]}', []),
        (b"\xff\xfe", []),
    ],
)
def test_names_that_the_daemon_knows(tmp_path: Path, body: bytes, names: list[str]) -> None:
    path = tmp_path / "api.sock"
    with answering(path, says(body)):
        assert backend_names(context(path)) == names


def test_who_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_values, "TIMEOUT_SECONDS", 0.01)
    path, asked = tmp_path / "api.sock", threading.Event()
    with answering(path, lambda _connection: asked.wait() and None):
        assert backend_names(context(path)) == []
        asked.set()


def test_who_is_gone_or_was_never_there_has_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_over = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left_over))
    assert backend_names(context(left_over)) == []
    assert backend_names(context(tmp_path / "none.sock")) == []
    monkeypatch.setenv("MOETUNED_RUNTIME_DIR", str(tmp_path))
    assert backend_names(click.Context(click.Command("x"))) == []


def test_the_socket_in_the_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves ~ as it is typed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with answering(tmp_path / "api.sock", says(status("glm"))):
        assert backend_names(context(Path("~/api.sock"))) == ["glm"]


def test_units_that_run_or_have_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc, lib, running = tmp_path / "etc", tmp_path / "lib", tmp_path / "units"
    for directory in (etc, lib, running):
        directory.mkdir()
    for file in (
        etc / "llama.service",
        lib / "llama.service",
        lib / "ollama.service",
        lib / "at@.service",
        lib / "x.timer",
    ):
        file.touch()
    for name in ("at@one.service", "dev-sda.swap", "a\\x2db.service"):
        os.symlink("0123", running / f"invocation:{name}")
    (running / "log-level-max:llama.service").touch()
    monkeypatch.setattr(completion_values, "UNIT_DIRECTORIES", (str(etc), str(lib), str(tmp_path / "none")))
    monkeypatch.setattr(completion_values, "RUNNING_UNITS", str(running))
    assert unit_names(click.Context(click.Command("x"))) == ["at@one.service", "llama.service", "ollama.service"]


@given(st.sets(st.text()))
def test_what_a_shell_would_take_for_more_than_a_word_is_left_out(names: set[str]) -> None:
    for name in plain(names):
        assert not set(name) & set(" \t\r\n\x00\\'\"`$&|;<>(){}[]*?!~#^=:")
        assert name[0].isalnum()
        assert name.isascii()
