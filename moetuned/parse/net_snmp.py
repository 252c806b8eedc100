"""/proc/<pid>/net/snmp: counters of a network namespace, two lines a protocol: names, then numbers (RFC 4022 for TCP)."""

from __future__ import annotations

_TCP, _PASSIVE_OPENS = "Tcp:", "PassiveOpens"
_MOST_DIGITS = 20


def passive_opens(text: str) -> int | None:
    """How many TCP connections were ever taken in this network, IPv4 and IPv6, also those that no process has accepted yet; None: unknown."""
    lines = [fields for line in text.split("\n") if (fields := line.split()) and fields[0] == _TCP]
    if len(lines) != 2 or _PASSIVE_OPENS not in lines[0]:
        return None
    names, numbers = lines
    at = names.index(_PASSIVE_OPENS)
    if at >= len(numbers):
        return None
    number = numbers[at]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS else None
