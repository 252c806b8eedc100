"""Numbers out of the kernel's "key value" texts, by key, without building a table of keys nobody needs.

The kernel ends each line with a newline, so a line without one was cut and its number is not to be trusted: unknown (None).
"""

from __future__ import annotations

_MAX_DIGITS = 20
NUMBERS_END = 1 << 62
"""From here on it is no count: a negative one printed without its sign (lxcfs: MemFree when more is in use than the limit), the "no
limit" of cgroup v1, or rubbish. A few smaller ones can be added up and still fit 64 bits."""
MEMORY_END_BYTES = 1 << 60
"""No machine has an exbibyte."""


def whole_number(text: str) -> int | None:
    """The number that `text` is, from 0 to below NUMBERS_END, or None."""
    digits = text.strip()
    if not digits.isdigit() or not digits.isascii() or len(digits) > _MAX_DIGITS:
        return None
    number = int(digits)
    return number if number < NUMBERS_END else None


def single_number(text: str | None) -> int | None:
    """The number of a file that holds nothing else; None for "max", text without its newline (cut) or other text."""
    if text is None or not text.endswith("\n"):
        return None
    return whole_number(text)


def line_value(text: str, key: str, end: str) -> str | None:
    """Text after `key` + `end` on the line that starts so; None when there is no such complete line."""
    marker = key + end
    start = text.find(marker)  # nearly always the line's own beginning; a tick asks for eighty lines
    if start > 0 and text[start - 1] != "\n":
        start = text.find("\n" + marker, start) + 1 or -1
    if start < 0:
        return None
    start += len(marker)
    stop = text.find("\n", start)
    return None if stop < 0 else text[start:stop]


def line_number(text: str, key: str, end: str = " ") -> int | None:
    """The number after `key`; None when missing, cut or no number."""
    value = line_value(text, key, end)
    return None if value is None else whole_number(value)


def line_kilobytes(text: str, key: str) -> int | None:
    """Bytes of a "Key:   123 kB" line of /proc/meminfo or /proc/<pid>/status; None when missing, cut or other."""
    value = line_value(text, key, ":")
    if value is None or not value.endswith(" kB"):
        return None
    kilobytes = whole_number(value[:-3])
    return None if kilobytes is None or kilobytes * 1024 >= MEMORY_END_BYTES else kilobytes * 1024
