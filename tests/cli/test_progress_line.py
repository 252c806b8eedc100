"""Progress on terminals of either kind, and none where nobody watches."""

from __future__ import annotations

import io

from moetuned.cli.progress_line import QUIET_SECONDS, Bar, Elapsed, Lines, shows_unicode, style_of

MIB = 1 << 20


class Stream(io.StringIO):
    def __init__(self, encoding: str = "utf-8", terminal: bool = True) -> None:
        super().__init__()
        self._encoding, self._terminal = encoding, terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_encodings() -> None:
    assert [shows_unicode(Stream(name)) for name in ("UTF-8", "utf8", "ascii", "ANSI_X3.4-1968", "latin-1")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert not shows_unicode(None)
    assert style_of(Stream("ascii"), colour=False).levels.isascii()


def test_a_bar_with_rate_and_time_left() -> None:
    clock, stream = Clock(), Stream()
    bar = Bar(stream, 100 * MIB, clock)
    bar.draw(0, "m.gguf")
    clock.now = 2.0
    bar.draw(50 * MIB, "m.gguf")
    assert "50 %" in stream.getvalue()
    assert "█" in stream.getvalue()
    assert "2.0 s left" in stream.getvalue()
    bar.clear()
    assert stream.getvalue().endswith("\r")


def test_a_bar_is_not_drawn_for_every_piece() -> None:
    clock, stream = Clock(), Stream()
    bar = Bar(stream, 100, clock)
    for done in range(100):
        bar.draw(done)
    assert stream.getvalue().count("\r") == 1


def test_a_bar_without_utf_8() -> None:
    stream = Stream("ascii")
    Bar(stream, 100, Clock()).draw(50)
    assert stream.getvalue().isascii()
    assert "####" in stream.getvalue()


def test_nobody_watches() -> None:
    clock, stream = Clock(), Stream(terminal=False)
    bar, line = Bar(stream, 100, clock), Elapsed(stream, "looking at", clock)
    clock.now = 10.0
    bar.draw(50)
    line.draw("m.gguf")
    bar.clear()
    line.clear()
    assert stream.getvalue() == ""


def test_what_is_quick_is_not_drawn() -> None:
    clock, stream = Clock(), Stream()
    line = Elapsed(stream, "looking at", clock)
    clock.now = QUIET_SECONDS / 2
    line.draw("m.gguf")
    line.clear()
    assert stream.getvalue() == ""
    clock.now = QUIET_SECONDS + 0.1
    line.draw("m\x1b.gguf")
    assert "looking at m\\x1b.gguf, 1.1 s" in stream.getvalue()


def test_off_a_terminal_lines_come_now_and_then() -> None:
    clock, stream = Clock(), Stream(terminal=False)
    lines = Lines(stream, "glm\n", clock)
    lines.say(0, 0, "")
    for _ in range(4 * 25):
        clock.now += 0.25
        lines.say(MIB, 4 * MIB, "it reads" if clock.now < 5 else "")
    assert stream.getvalue().splitlines() == [
        "glm\\n: begins",
        "glm\\n: 1.0 MiB of 4.0 MiB, waits: it reads",
        "glm\\n: 1.0 MiB of 4.0 MiB",
        "glm\\n: 1.0 MiB of 4.0 MiB",
        "glm\\n: 1.0 MiB of 4.0 MiB",
    ]


def test_waiting_that_comes_and_goes_does_not_fill_a_log() -> None:
    clock, stream = Clock(), Stream(terminal=False)
    lines = Lines(stream, "glm", clock)
    for turn in range(100):
        clock.now += QUIET_SECONDS / 10
        lines.say(1, 4, "it reads" if turn % 2 else "")
    assert stream.getvalue().count("\n") <= 11
