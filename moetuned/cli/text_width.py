"""How wide text is on a terminal, and where to break it: wide characters count two columns, marks that stand on others none."""

from __future__ import annotations

import re

_COMMAND = re.compile(
    r"(?:sudo )?\b(?:moetunectl|systemctl|journalctl|curl|kill(?= -))(?: (?:'[^']*'|-{0,2}[A-Za-z0-9_./:@%+=][^\s;,(']*))+"
)
_JOINT = "\ue000"
"""Stands for a blank at which no line ends; printable text holds none (it is for private use)."""
_WIDE = frozenset("WF")
_ON_OTHERS = frozenset(("Mn", "Me"))


def printable(text: str) -> str:
    """Without anything that could steer a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def columns_of(text: str) -> int:
    """Columns of printable text (Unicode Standard Annex #11; ambiguous characters count one)."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # only who has such text pays for it

    return sum(2 if east_asian_width(char) in _WIDE else category(char) not in _ON_OTHERS for char in text)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at blanks, in a word only where it is wider than a line. [] of nothing."""
    if text.strip() and columns_of(text) <= width:
        return [text]
    lines: list[str] = []
    line, used = "", 0
    for word in text.split():
        wide = columns_of(word)
        if line and used + 1 + wide <= width:
            line, used = f"{line} {word}", used + 1 + wide
            continue
        if line:
            lines.append(line)
        while wide > width and (head := _head(word, width)):
            lines.append(head)
            word = word[len(head) :]
            wide = columns_of(word)
        line, used = word, wide
    return [*lines, line] if line else lines


def wrap_around_commands(text: str, width: int) -> list[str]:
    """As `wrap`, and a command that is to be typed is in one line where it fits into one: of two it cannot be copied."""
    joined = _COMMAND.sub(lambda found: _joined(found[0], width), text)
    return [line.replace(_JOINT, " ") for line in wrap(joined, width)]


def _joined(command: str, width: int) -> str:
    return command.replace(" ", _JOINT) if columns_of(command) <= width else command


def _head(word: str, width: int) -> str:
    """At least one character, so that breaking ends."""
    used = 0
    for index, char in enumerate(word):
        used += columns_of(char)
        if used > width:
            return word[: max(1, index)]
    return word
