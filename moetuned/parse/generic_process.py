"""Whether a process is the server that an entry of the config describes by an expression (`generic.process`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from moetuned.parse.bounded_pattern import MOST_TEXT, bounded_pattern
from moetuned.schema.config import Generic


def is_of(generic: Generic, argv: Sequence[str]) -> bool:
    """Whether the program and its arguments, joined by blanks and cut at `MOST_TEXT` characters, begin as the expression says."""
    pattern = _compiled(generic.process)
    return pattern is not None and bool(argv) and pattern.match(_joined(argv)) is not None


def _joined(argv: Sequence[str]) -> str:
    """No longer than needed: a command line may have 256 KiB."""
    words, length = [], 0
    for word in argv:
        if length > MOST_TEXT:
            break
        words.append(word[:MOST_TEXT])
        length += len(word) + 1
    return " ".join(words)[:MOST_TEXT]


@lru_cache(maxsize=64)
def _compiled(text: str) -> re.Pattern[str] | None:
    try:
        return bounded_pattern(text)
    except ValueError:
        return None
