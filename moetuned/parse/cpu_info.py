"""/proc/cpuinfo, /proc/loadavg, and the lists of CPUs in /sys (Documentation/admin-guide/cputopology.rst)."""

from __future__ import annotations

_MOST_CPUS = 65536


def parse_cpu_features(text: str | None) -> tuple[str, ...]:
    """Flags of the first CPU (`flags` on x86, `Features` on ARM), sorted; () when there are none."""
    for line in (text or "").splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() in ("flags", "Features"):
            return tuple(sorted(set(rest.split())))
    return ()


def parse_cpu_list(text: str | None) -> frozenset[int] | None:
    """CPUs of a list such as "0-3,8"; None for what is no list."""
    found: set[int] = set()
    for part in (text or "").strip().split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 16:
            return None
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < _MOST_CPUS:
            return None
        found.update(range(low, high + 1))
    return frozenset(found)


def parse_load(text: str | None) -> float | None:
    """The load average of the last minute; None for what is none."""
    word = (text or "").partition(" ")[0]
    whole, point, rest = word.partition(".")
    return float(word) if point and whole.isdecimal() and rest.isdecimal() and len(word) < 16 else None
