"""Text that can leave the program: names of files and directories may be any bytes, and Python's `str` then holds what no UTF-8 can."""

from __future__ import annotations

import re

import msgspec

_SURROGATES = re.compile("[\ud800-\udfff]")


def unicode_text(text: str) -> str:
    """The text with U+FFFD for each lone surrogate (PEP 383), as if it had been read with errors replaced."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def unicode_json(value: object) -> bytes:
    """`value` as JSON, its texts as `unicode_text` has them: a path in it is what some process or directory is called."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_clear(msgspec.to_builtins(value)))


def _clear(value: object) -> object:
    match value:
        case str():
            return unicode_text(value)
        case dict():
            return {_clear(name): _clear(each) for name, each in value.items()}
        case list() | tuple():
            return [_clear(each) for each in value]
    return value
