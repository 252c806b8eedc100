from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Iterator

import pytest
from fakes.terminal_picture import TerminalPicture

from moetuned.cli.live_screen import LiveScreen, TerminalGone


class Terminal:
    def __init__(self) -> None:
        self.master, self.inside = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 30, 0, 0))
        self.modes = termios.tcgetattr(self.inside)
        self.picture = TerminalPicture(30, 10)

    def read(self) -> bytes:
        data = b""
        while select.select([self.master], [], [], 0)[0]:
            data += os.read(self.master, 1 << 16)
        self.picture.feed(data)
        return data

    def close(self) -> None:
        for descriptor in (self.master, self.inside):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    it = Terminal()
    yield it
    it.close()


@pytest.fixture
def screen(terminal: Terminal) -> Iterator[LiveScreen]:
    it = LiveScreen(terminal.inside, colour=True)
    yield it
    it.close()


def test_what_is_no_terminal_is_refused() -> None:
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="Inappropriate"):
        LiveScreen(writer, colour=False)
    os.close(reader)
    os.close(writer)


def test_it_never_blocks_and_leaves_the_flags_of_others_alone(terminal: Terminal, screen: LiveScreen) -> None:
    assert not os.get_blocking(screen.fileno())
    assert os.get_blocking(terminal.inside)
    assert screen.read() == b""


def test_enter_and_leave(terminal: Terminal, screen: LiveScreen) -> None:
    screen.enter()
    assert not termios.tcgetattr(terminal.inside)[3] & (termios.ICANON | termios.ECHO)
    assert termios.tcgetattr(terminal.inside)[3] & termios.ISIG
    screen.draw([(("reads", "bold"),), (("█▁", ""),)])
    terminal.read()
    assert terminal.picture.rows[:3] == ["reads", "█▁", ""]
    assert terminal.picture.modes == {1049}
    assert terminal.picture.colours == {"0", "1"}
    screen.leave()
    terminal.read()
    assert terminal.picture.modes == {7, 25}
    assert termios.tcgetattr(terminal.inside) == terminal.modes
    screen.leave()
    assert terminal.read() == b""


def test_taking_it_twice_does_not_forget_how_it_was(terminal: Terminal, screen: LiveScreen) -> None:
    screen.enter()
    screen.enter()
    screen.leave()
    assert termios.tcgetattr(terminal.inside) == terminal.modes


def test_size(terminal: Terminal, screen: LiveScreen) -> None:
    assert screen.size() == (30, 10)
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    assert screen.size() == (80, 24)


def test_a_terminal_that_takes_nothing_gets_the_newest_picture_later(terminal: Terminal, screen: LiveScreen) -> None:
    screen.enter()
    screen.flush()
    terminal.read()
    number = 0
    while not screen.pending:
        number += 1
        screen.draw([((f"{number} " + "x" * 20, ""),) for _ in range(10)])
        assert number < 10_000
    for later in range(100):
        screen.draw([((f"later {later}", ""),)])
    while screen.pending:
        terminal.read()
        screen.flush()
    screen.draw([(("last", ""),)])
    data = terminal.read()
    assert b"later" not in data
    assert terminal.picture.text.rstrip() == "last"


def test_leaving_a_terminal_that_takes_nothing_ends(terminal: Terminal, screen: LiveScreen) -> None:
    screen.enter()
    while not screen.pending:
        screen.draw([(("x" * 30, ""),) for _ in range(10)], anew=True)
    screen.leave()
    assert termios.tcgetattr(terminal.inside) == terminal.modes


def test_drawn_anew_everything_is_written(terminal: Terminal, screen: LiveScreen) -> None:
    screen.enter()
    screen.draw([(("reads", ""),)])
    terminal.read()
    screen.draw([(("reads", ""),)])
    assert terminal.read() == b""
    screen.draw([(("reads", ""),)], anew=True)
    assert b"reads" in terminal.read()


def test_what_the_encoding_cannot_say_is_a_question_mark(terminal: Terminal) -> None:
    screen = LiveScreen(terminal.inside, colour=False, encoding="ascii")
    screen.enter()
    screen.draw([(("é█", "red"),)])
    terminal.read()
    assert terminal.picture.rows[0] == "??"
    assert terminal.picture.colours == {"0"}
    screen.close()


def test_a_terminal_that_is_gone(terminal: Terminal, screen: LiveScreen) -> None:
    screen.enter()
    os.close(terminal.master)
    terminal.master = -1
    with pytest.raises(TerminalGone):
        screen.read()
    with pytest.raises(TerminalGone):
        screen.draw([(("x", ""),)])
    with pytest.raises(TerminalGone):
        screen.flush()
    screen.leave()
