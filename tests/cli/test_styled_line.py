from __future__ import annotations

from fakes.terminal_picture import TerminalPicture
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.columns import clean, cut
from moetuned.cli.styled_line import STYLES, difference, plain, styled

COLUMNS, ROWS = 20, 6
TEXT = st.text("ab 漢▁e\u0301", max_size=24).map(clean)
LINE = st.lists(st.tuples(TEXT, st.sampled_from(sorted(STYLES))), max_size=4)


def _fitting(line):
    fitted, room = [], COLUMNS
    for text, style in line:
        shown = cut(text, room, "")
        room -= sum(2 if char == "漢" else 0 if char == "\u0301" else 1 for char in shown)
        fitted.append((shown, style))
    return tuple(fitted)


FRAME = st.lists(LINE.map(_fitting), max_size=ROWS)


def test_text_and_colour() -> None:
    line = (("glm", "red"), (" is well ", ""), ("x", "dim"), ("  ", ""))
    assert plain(line) == "glm is well x"
    assert styled(line, colour=False) == "glm is well x"
    assert styled(line, colour=True) == "\x1b[1;31mglm\x1b[0m is well \x1b[2mx\x1b[0m"


def test_what_is_the_same_is_not_written() -> None:
    frame = [(("moetuned", "bold"),), (("reads 12 MB/s", ""),)]
    assert difference(frame, frame, colour=True) == ""
    later = [frame[0], (("reads 13 MB/s", ""),)]
    assert difference(frame, later, colour=True) == "\x1b[2;8H3"
    assert difference(frame, frame[:1], colour=True) == "\x1b[2;1H\x1b[K"


def test_changes_near_each_other_are_written_together() -> None:
    before, after = [(("12 of 34 and 56789012345 is 1", ""),)], [(("13 of 35 and 56789012345 is 2", ""),)]
    assert difference(before, after, colour=False) == "\x1b[1;2H3 of 35\x1b[1;29H2"


@given(FRAME, FRAME, FRAME, st.booleans())
def test_a_terminal_shows_what_was_wanted(first, second, third, colour) -> None:
    terminal = TerminalPicture(COLUMNS, ROWS)
    terminal.modes.discard(7)
    shown = []
    for frame in (first, second, third):
        terminal.feed(difference(shown, frame, colour=colour).encode())
        shown = frame
        wanted = [_as_shown(plain(line)) for line in frame] + [""] * (ROWS - len(frame))
        assert terminal.rows == wanted
        assert not terminal.overflowed
    assert colour or not terminal.colours


def _as_shown(text: str) -> str:
    """A mark without a character before it is not shown."""
    return text.lstrip("\u0301").rstrip()
