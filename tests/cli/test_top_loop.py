"""moetunectl top as a process on a real pseudo terminal, with a daemon's server in the test: keys, sizes, signals, and how it is left."""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import pytest
from fakes.own_terminal import OwnTerminal, own_terminal
from top_scenes import squeezed, two

from moetuned.api.server import ApiServer
from moetuned.cli.top_view import Top
from moetuned.schema.config import Api

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-c", "from moetuned.cli.main import main; main()", "top", "--interval", "0.2"]


class Daemon:
    """Answers status and history of a scene, a second later at each look, while `turn` is called."""

    def __init__(self, path: str, top: Top) -> None:
        self.path, self.top = path, top
        self.looks = self.histories = 0
        self.selector = selectors.DefaultSelector()
        self.server: ApiServer | None = None
        self.answers = True
        self.up()

    def up(self) -> None:
        config = msgspec.convert({"socket": self.path, "listen": False, "group": "no-such-group-here"}, Api)
        self.server = ApiServer(
            config, self._snapshot, lambda _since: [], lambda _name, _payload: (200, {}), history=self._history
        )
        self.server.register(self.selector)

    def down(self) -> None:
        assert self.server is not None
        self.server.close()
        self.server = None

    def _history(self, _seconds, _backend):
        self.histories += 1
        return self.top.history

    def _snapshot(self):
        self.looks += 1
        assert self.top.snapshot is not None
        return msgspec.structs.replace(self.top.snapshot, wall_seconds=time.time())

    def turn(self) -> None:
        if not self.answers:
            return
        for key, events in self.selector.select(0):
            if self.selector.get_map().get(key.fd) is key:
                key.data(events)


Start = Callable[..., AbstractContextManager[OwnTerminal]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    it = Daemon(str(tmp_path / "api.sock"), squeezed())
    yield it
    if it.server is not None:
        it.down()
    it.selector.close()


@pytest.fixture
def start(daemon: Daemon) -> Start:
    @contextmanager
    def begin(
        size: tuple[int, int] = (80, 24), command: list[str] | None = None, **environ: str
    ) -> Iterator[OwnTerminal]:
        told = {"PYTHONPATH": str(ROOT), **environ}
        whole = command or [*PROGRAM, "--socket", daemon.path]
        with own_terminal(whole, size, told, meanwhile=daemon.turn) as terminal:
            yield terminal

    return begin


def test_it_draws_and_is_quit_by_a_key(start: Start, daemon: Daemon) -> None:
    with start() as terminal:
        terminal.shows("glm is thrashing for 40 s")
        terminal.shows("q quit")
        assert 1049 in terminal.picture.modes
        assert 25 not in terminal.picture.modes
        assert "█" in terminal.picture.text
        assert terminal.picture.colours >= {"1;31", "2"}
        modes = termios.tcgetattr(terminal.master)
        assert not modes[3] & (termios.ICANON | termios.ECHO)
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before
    assert daemon.histories == 1


def test_only_what_changed_is_written(start: Start, daemon: Daemon) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        first, looks = terminal.picture.fed_bytes, daemon.looks
        terminal.until(lambda: daemon.looks >= looks + 10, "ten more looks")
        # The clock, and who else reads and grows now; not the whole picture ten times.
        assert terminal.picture.fed_bytes - first < first


def test_keys(start: Start, daemon: Daemon) -> None:
    daemon.top = two()
    with start((80, 30)) as terminal:
        terminal.shows("> dense is answering")
        terminal.type("\x1b[B")
        terminal.shows("> glm is not running")
        terminal.type("\r")
        terminal.until(lambda: "dense" not in terminal.picture.text, "only glm is shown")
        terminal.type("\x1b")
        terminal.shows("dense is answering")
        terminal.type("s")
        terminal.shows("sort headroom")
        terminal.type("?")
        terminal.shows("any key goes back")
        terminal.type("x")
        terminal.shows("sort headroom")
        terminal.type("p")
        terminal.shows("PAUSED")
        looks = daemon.looks
        for _ in range(20):
            terminal._meanwhile()
            terminal.read(0.02)
        assert daemon.looks <= looks + 1  # one may have been under way
        terminal.type(" ")
        terminal.until(lambda: daemon.looks > looks + 1, "goes on")
        terminal.type("q")
        assert terminal.ends() == 0


@pytest.mark.parametrize(
    ("size", "begin"),
    [((40, 12), "glm is thrashing"), ((20, 5), "glm is thrashing"), ((160, 50), "glm is thrashing"), ((1, 1), "…")],
)
def test_it_follows_the_size(start: Start, size: tuple[int, int], begin: str) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        terminal.resize(*size)
        terminal.until(
            lambda: len(terminal.written.split(b"\x1b[2J")) > 2 and begin in terminal.picture.text, "drawn anew"
        )
        assert not terminal.picture.overflowed
        terminal.resize(80, 24)
        terminal.shows("q quit")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(start: Start, number: int) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        terminal.process.send_signal(number)
        assert terminal.ends() == -number
        assert terminal.is_as_before


def test_ctrl_c_ends_it_well(start: Start) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        terminal.type("\x03")
        assert terminal.ends() == 0
        assert terminal.is_as_before
        assert b"Traceback" not in terminal.written
        assert b"interrupted" not in terminal.written


def test_a_signal_ends_it_while_the_terminal_takes_nothing(start: Start, daemon: Daemon) -> None:
    with start((200, 60)) as terminal:
        terminal.shows("q quit")
        os.write(terminal.master, b"\x13")  # Ctrl-S: the terminal takes nothing any more
        terminal.resize(150, 50)  # a whole picture that cannot be written
        looks = daemon.looks
        terminal.until(lambda: daemon.looks > looks + 3, "goes on looking")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == -signal.SIGTERM
        assert termios.tcgetattr(terminal.master) == terminal.modes


def test_the_terminal_disappears(start: Start) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        terminal.hang_up()
        terminal.process.wait(20)
        assert terminal.process.returncode in (0, -signal.SIGHUP)  # whichever it noticed first


def test_the_daemon_goes_away_and_comes_back(start: Start, daemon: Daemon) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        daemon.down()
        terminal.shows("(it goes on by itself): moetuned is not running")
        assert "glm is thrashing" in terminal.picture.text
        looks = daemon.looks
        daemon.up()
        terminal.until(lambda: "not running" not in terminal.picture.text, "it goes on")
        assert daemon.looks > looks
        terminal.type("q")
        assert terminal.ends() == 0


def test_a_daemon_that_hangs_does_not_hold_up_keys(start: Start, daemon: Daemon) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        daemon.answers = False
        terminal.shows("No answer for")
        terminal.type("?")
        terminal.shows("any key goes back")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before


def test_no_color_and_ascii(start: Start) -> None:
    with start(NO_COLOR="1", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") as terminal:
        terminal.shows("q quit")
        assert terminal.picture.text.isascii()
        assert "#" in terminal.picture.text
        assert terminal.picture.colours <= {"0"}
        terminal.type("q")
        assert terminal.ends() == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash for its job control")
def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(start: Start, daemon: Daemon) -> None:
    shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    with start(command=shell, PS1="shell> ") as terminal:
        terminal.shows("shell>")
        modes = termios.tcgetattr(terminal.master)
        terminal.type(shlex.join([*PROGRAM, "--socket", daemon.path]) + "\n")
        terminal.shows("q quit")
        terminal.type("\x1a")
        terminal.until(lambda: 1049 not in terminal.picture.modes and b"Stopped" in terminal.written, "is stopped")
        assert terminal.picture.modes == {7, 25}
        assert termios.tcgetattr(terminal.master) == modes
        terminal.type("fg\n")
        terminal.until(lambda: 1049 in terminal.picture.modes and "q quit" in terminal.picture.text, "goes on")
        looks = daemon.looks
        terminal.until(lambda: daemon.looks > looks, "looks again")
        terminal.type("q")
        terminal.until(lambda: 1049 not in terminal.picture.modes, "is quit")
        terminal.type("exit\n")
        terminal.ends()
        assert terminal.picture.modes == {7, 25}


def test_stopped_and_continued_it_takes_the_terminal_again(start: Start) -> None:
    with start() as terminal:
        terminal.shows("q quit")
        terminal.process.send_signal(signal.SIGSTOP)
        cooked = list(terminal.modes)
        termios.tcsetattr(terminal.master, termios.TCSANOW, cooked)  # as a shell does
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda: not termios.tcgetattr(terminal.master)[3] & termios.ICANON, "takes it again")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before


def test_without_a_daemon_nothing_is_drawn(start: Start, daemon: Daemon) -> None:
    daemon.down()
    with start() as terminal:
        assert terminal.ends() == 3
        assert b"is not running" in terminal.written
        assert b"\x1b" not in terminal.written


def test_a_dumb_terminal_is_refused(start: Start) -> None:
    with start(TERM="dumb") as terminal:
        assert terminal.ends() == 2
        assert b"status --watch" in terminal.written
        assert b"\x1b" not in terminal.written
