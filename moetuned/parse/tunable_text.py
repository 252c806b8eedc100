"""Text of sysctl and sysfs files to normalised values: whole numbers and choice files."""

from __future__ import annotations

import re

from moetuned.schema.tunable import Codec

_INTEGER = re.compile(r"[+-]?\d{1,20}")
_CHOSEN = re.compile(r"\[([^\[\]\s]+)\]")


def parse_value(codec: Codec, text: str) -> str:
    """The value that `text`, as read from the kernel, says is in force. Raises ValueError with what was read.

    A number loses white space, sign and leading zeros that mean nothing; of a choice file the word in brackets is taken
    (Documentation/admin-guide/mm/transhuge.rst).
    """
    if codec is Codec.INTEGER:
        stripped = text.strip()
        if _INTEGER.fullmatch(stripped) is None:
            raise ValueError(f"{text[:80]!r} is no whole number")
        return str(int(stripped))
    chosen = _CHOSEN.findall(text)
    if len(chosen) != 1:
        raise ValueError(f"{text[:80]!r} has no single choice in brackets")
    return str(chosen[0])


def parse_choices(text: str) -> tuple[str, ...]:
    """All words a choice file offers, in its order."""
    return tuple(word.strip("[]") for word in text.split())
