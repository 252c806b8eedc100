"""Lines of a screen: pieces of text, each with a style; and what has to be written to make one screen of another."""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.cli.text_width import columns_of

STYLES = {"": "", "bold": "1", "red": "1;31", "yellow": "33", "green": "32", "dim": "2"}
"""Styles and their numbers in ECMA-48 (SGR)."""

Span = tuple[str, str]
Line = tuple[Span, ...]
_Cell = tuple[str, str]

_JOIN_COLUMNS = 6
"""Unchanged columns between two changed ones that are cheaper to write again than to skip."""


def plain(line: Line) -> str:
    """The text alone, without spaces at its end."""
    return "".join(text for text, _ in line).rstrip()


def styled(line: Line, *, colour: bool) -> str:
    """The text with its styles, where there is colour."""
    if not colour:
        return plain(line)
    return "".join(f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style else text for text, style in line).rstrip()


def difference(shown: Sequence[Line], wanted: Sequence[Line], *, colour: bool) -> str:
    """What makes a terminal that shows the lines `shown` show `wanted`, from row 1 on; only what differs is written."""
    written: list[str] = []
    for row in range(max(len(shown), len(wanted))):
        before = _cells(shown[row] if row < len(shown) else (), colour=colour)
        after = _cells(wanted[row] if row < len(wanted) else (), colour=colour)
        if before != after:
            written.append(_row_difference(row + 1, before, after))
    return "".join(written)


def _row_difference(row: int, before: list[_Cell], after: list[_Cell]) -> str:
    parts: list[str] = []
    for start, end in _changed(before, after):
        parts.append(f"\x1b[{row};{start + 1}H{_text(after[start:end])}")
    if len(before) > len(after):
        parts.append(f"\x1b[{row};{len(after) + 1}H\x1b[K")
    return "".join(parts)


def _changed(before: list[_Cell], after: list[_Cell]) -> list[tuple[int, int]]:
    """Ranges of columns of `after` that differ, those near each other joined, none that begins or ends within a wide character."""
    ranges: list[tuple[int, int]] = []
    for column, cell in enumerate(after):
        if column < len(before) and before[column] == cell:
            continue
        if ranges and column - ranges[-1][1] <= _JOIN_COLUMNS:
            ranges[-1] = (ranges[-1][0], column + 1)
        else:
            ranges.append((column, column + 1))
    return [_whole(start, end, before, after) for start, end in ranges]


def _whole(start: int, end: int, before: list[_Cell], after: list[_Cell]) -> tuple[int, int]:
    while start > 0 and (_is_right_half(after, start) or _is_right_half(before, start)):
        start -= 1
    while end < len(after) and (_is_right_half(after, end) or _is_right_half(before, end)):
        end += 1
    return start, end


def _is_right_half(cells: list[_Cell], column: int) -> bool:
    return column < len(cells) and cells[column][0] == ""


def _text(cells: list[_Cell]) -> str:
    written, now = "", ""
    for char, style in cells:
        if style != now:
            written += ("\x1b[0m" if now else "") + (f"\x1b[{STYLES[style]}m" if style else "")
            now = style
        written += char
    return written + ("\x1b[0m" if now else "")


def _cells(line: Line, *, colour: bool) -> list[_Cell]:
    """A cell a column; the right half of a wide character is an empty one. Without the spaces at the end."""
    cells: list[_Cell] = []
    for text, style in line:
        shown = style if colour else ""
        for char in text:
            width = columns_of(char)
            if width == 0:
                if cells:
                    position = len(cells) - 1 if cells[-1][0] else len(cells) - 2
                    cells[position] = (cells[position][0] + char, cells[position][1])
                continue
            cells.append((char, shown))
            cells.extend([("", shown)] * (width - 1))
    while cells and cells[-1] == (" ", ""):
        cells.pop()
    return cells
