"""Text of sysctl, sysfs and cgroup files to normalised values, and back to the text that such a file takes."""

from __future__ import annotations

import re

from moetuned.schema.tunable import Codec

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_CHOSEN = re.compile(r"\[([^\[\]\s]+)\]")
_LIMIT = re.compile(r"[0-9]{1,20}|max")
_WEIGHT = re.compile(r"default ([0-9]{1,20})")


def parse_value(codec: Codec, text: str) -> str:
    """The value that `text`, as read from the kernel, says is in force. Raises ValueError with what was read.

    A number loses white space, sign and leading zeros that mean nothing; of a choice file the word in brackets is taken
    (Documentation/admin-guide/mm/transhuge.rst); of a weight only the line for all devices counts, those of single devices stay
    what they are (Documentation/admin-guide/cgroup-v2.rst).
    """
    if codec is Codec.CHOICE:
        chosen = _CHOSEN.findall(text)
        if len(chosen) != 1:
            raise ValueError(f"{text[:80]!r} has no single choice in brackets")
        return str(chosen[0])
    stripped = text.strip()
    if codec is Codec.WEIGHT:
        found = [match[1] for line in stripped.splitlines() if (match := _WEIGHT.fullmatch(line.strip()))]
        if len(found) != 1:
            raise ValueError(f"{text[:80]!r} has no single line `default` and a whole number")
        stripped = found[0]
    elif codec is Codec.LIMIT:
        if _LIMIT.fullmatch(stripped) is None:
            raise ValueError(f"{text[:80]!r} is neither a whole number nor max")
        if stripped == "max":
            return stripped
    elif _INTEGER.fullmatch(stripped) is None:
        raise ValueError(f"{text[:80]!r} is no whole number")
    return str(int(stripped))


def text_of(codec: Codec, value: str) -> str:
    """What is written to a file for a normalised value."""
    return f"default {value}" if codec is Codec.WEIGHT else value


def parse_choices(text: str) -> tuple[str, ...]:
    """All words a choice file offers, in its order."""
    return tuple(word.strip("[]") for word in text.split())
