"""Text in columns of a terminal: cut, padded or broken to a width, and free of what would steer the terminal."""

from __future__ import annotations

from moetuned.cli.text_width import columns_of, printable


def clean(text: str, *, unicode: bool = True) -> str:
    """`text` without control characters, and without `unicode` nothing but ASCII: each other character is "?"."""
    shown = printable(text)
    return shown if unicode else shown.encode("ascii", "replace").decode("ascii")


def cut(text: str, width: int, end: str = "…") -> str:
    """`text` in at most `width` columns; where something had to go, `end` says so."""
    if columns_of(text) <= width:
        return text
    room, kept = width - columns_of(end), ""
    if room < 0:
        return end[: max(0, width)]
    for char in text:
        room -= columns_of(char)
        if room < 0:
            break
        kept += char
    return kept + end


def pad(text: str, width: int) -> str:
    """`text` with spaces up to `width` columns."""
    return text + " " * (width - columns_of(text))


def wrap(text: str, width: int, most_lines: int, end: str = "…", indent: int = 0) -> list[str]:
    """`text` in at most `most_lines` lines of at most `width` columns, broken at spaces where there are any; the last is cut.

    Lines after the first begin with `indent` spaces, unless there is hardly room for anything else.
    """
    indent = indent if width > 2 * indent else 0
    lines: list[str] = []
    words = text.split()
    while words:
        lead = " " * indent if lines else ""
        room = width - len(lead)
        if len(lines) == most_lines - 1:
            lines.append(lead + cut(" ".join(words), room, end))
            break
        line = ""
        while words and columns_of(line) + bool(line) + columns_of(words[0]) <= room:
            line += (" " if line else "") + words.pop(0)
        if not line:  # a word that is longer than a line
            line = cut(words[0], room, "")
            if not line:
                break
            words[0] = words[0][len(line) :]
        lines.append(lead + line)
    return lines or [""]
