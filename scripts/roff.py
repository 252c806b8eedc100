"""Text as roff, for the man pages: macros of man(7) that man-db, groff and mandoc all know."""  # noqa: INP001

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise

_WIDTH = 78
_SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
_MARKS = re.compile(r"`([^`]+)`|\*([^*\s]+)\*|\[([^\]]+)\]\([^)]+\)")
_LONG = re.compile(r"\S{40,}")
"""A path that may not fit a narrow line: it may be broken behind a slash."""


def escape(text: str) -> str:
    """Text that is shown as it is, so that what is copied from a page can be run: a hyphen stays a hyphen, a quote a quote."""
    return "".join(_SPECIAL.get(each) or (each if each < "\x7f" else rf"\[u{ord(each):04X}]") for each in text)


def bold(text: str) -> str:
    """What is typed as it is."""
    return rf"\fB{escape(text)}\fR"


def italic(text: str) -> str:
    """What something else is put in place of."""
    return rf"\fI{escape(text)}\fR"


def inline(text: str) -> str:
    """Text with the marks of our docstrings: `code`, *word* and [link](target), of which the words stay."""
    parts, end = [], 0
    for mark in _MARKS.finditer(text):
        code, word, link = mark.groups()
        parts += [escape(text[end : mark.start()]), bold(code) if code else italic(word) if word else escape(link)]
        end = mark.end()
    return _LONG.sub(lambda word: word[0].replace("/", r"/\:"), "".join([*parts, escape(text[end:])]))


def filled(roff: str) -> Iterator[str]:
    """Lines that are filled when they are shown; none is taken for a request."""
    for line in textwrap.wrap(roff, _WIDTH, break_long_words=False, break_on_hyphens=False):
        yield rf"\&{line}" if line[0] in ".'" else line


def paragraph(text: str) -> list[str]:
    """A paragraph of text with marks."""
    return [".PP", *filled(inline(text))]


def item(tag: str, *texts: str) -> list[str]:
    """An item of a list: `tag` is roff, the paragraphs below it are texts with marks."""
    lines = [".TP", tag]
    for number, text in enumerate(texts):
        lines += [*([".IP"] if number else []), *filled(inline(text))]
    return lines


def example(lines: Iterable[str]) -> list[str]:
    """Lines that stay as they are."""
    shown = (escape(line) for line in lines)
    return [
        ".PP",
        ".in +4n",
        ".EX",
        *(rf"\&{line}" if line[:1] in (".", "'") else line for line in shown),
        ".EE",
        ".in",
    ]


def synopsis(words: str, parts: Iterable[str]) -> list[str]:
    """How a command is called; `parts` are roff, broken between them only."""
    return [f'.SY "{escape(words)}"', *(part.replace(" ", r"\ ") for part in parts), ".YS"]


def page(name: str, section: int, about: str, date: str, release: str, manual: str, *blocks: list[str]) -> str:
    """A whole page, its name and one line about it first."""
    head = [
        r".\" Made by `make docs` from the program itself; edit that.",
        f'.TH "{escape(name.upper())}" {section} {date} "{escape(release)}" "{escape(manual)}"',
        ".nr HY 0",  # what some macros go back to
        ".nh",
        ".ad l",
        ".SH NAME",
        *filled(rf"{escape(name)} \- {escape(about)}"),
    ]
    lines = [line for block in (head, *blocks) for line in block]
    # A paragraph right below a heading begins without a macro.
    kept = [line for before, line in pairwise(["", *lines]) if line != ".PP" or before[:3] not in (".SH", ".SS")]
    return "\n".join(kept) + "\n"


def heading(title: str) -> list[str]:
    """A section."""
    return [f".SH {escape(title.upper())}"]


def subheading(title: str) -> list[str]:
    """A part of a section."""
    return [f'.SS "{escape(title)}"']
