"""Regular expressions out of a config that cannot run away: `re` backtracks, and an expression may take hours on the wrong text.

So only what is bounded is allowed: no repeat of a group or within one, at most two parts that may have different lengths, no look-around
and no back-references. On a text of n characters such an expression takes at most about n² steps, and texts are cut at
`MOST_TEXT` characters.
"""

from __future__ import annotations

import re

MOST_PATTERN = 200
MOST_TEXT = 512
_MOST_REPEATS = 2
_MOST_CHOICES = 8
_REPEAT = re.compile(r"[*+?]|\{\d*(,\d*)?\}")
_ESCAPES = frozenset("dDwWsSbB")


def bounded_pattern(text: str) -> re.Pattern[str]:
    """The compiled expression. Raises ValueError with one phrase that says what is wrong."""
    if not text or len(text) > MOST_PATTERN:
        raise ValueError(f"must have 1 to {MOST_PATTERN} characters")
    _check(text)
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from None


def _check(text: str) -> None:
    position = repeats = choices = depth = 0
    may_repeat = False
    while position < len(text):
        repeat = _REPEAT.match(text, position)
        part = repeat or _SIMPLE_GROUP.match(text, position)
        if part is not None:
            if repeat is not None and not may_repeat:
                raise ValueError("may repeat one character or one [set], not a group or another repeat")
            if depth:
                raise ValueError("may not repeat anything within a group, except as (\\S+), (\\d+) and the like")
            repeats, position, may_repeat = repeats + 1, part.end(), False
            continue
        letter = text[position]
        depth += (letter == "(") - (letter == ")")
        choices += letter == "|"
        if depth < 0:
            raise ValueError("has a ) too much")
        position, may_repeat = _behind(text, position), letter not in "()|^$"
    if repeats > _MOST_REPEATS:
        raise ValueError(f"may have at most {_MOST_REPEATS} repeats (* + ? {{}})")
    if choices > _MOST_CHOICES:
        raise ValueError(f"may have at most {_MOST_CHOICES} alternatives (|)")


def _behind(text: str, position: int) -> int:
    """Behind the character, escape, set or opening of a group at `position`."""
    following = text[position + 1 : position + 2]
    match text[position]:
        case "\\":
            if following.isalnum() and following not in _ESCAPES:
                raise ValueError(f"may not use \\{following}")
            return position + 2
        case "[":
            return _end_of_set(text, position)
        case "(" if following == "?":
            if not text.startswith("(?:", position):
                raise ValueError("may not use (?…) other than (?:…)")
            return position + 3
        case _:
            return position + 1


_SIMPLE_GROUP = re.compile(r"\((?:\\[dwsDWS]|\.|\[[^\[\]\\]{1,40}\])[*+]\)")
"""One repeated character or set in a group of its own: as bounded as without the group."""


def _end_of_set(text: str, position: int) -> int:
    """Behind the set that begins at `position`."""
    end = position + 1
    if text[end : end + 1] == "^":
        end += 1
    if text[end : end + 1] == "]":
        end += 1
    while end < len(text) and text[end] != "]":
        end += 2 if text[end] == "\\" else 1
    inside = text[position + 1 : end]
    if any(reserved in inside for reserved in ("[", "--", "&&", "~~", "||")):
        raise ValueError("may not use [, --, &&, ~~ or || within a [set]")
    return end + 1
