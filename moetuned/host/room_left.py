"""How much memory is left before its limit, read from inside a backend's cgroup by a process that imports almost nothing.

The same sum as `decide.memory_headroom`, but for what memory.min keeps elsewhere, which the daemon looks at: what cannot be reclaimed, and what was swapped out, against each limit that holds here: of the
cgroup, of those above it, and the machine's RAM. Memory that this process locked counts as what cannot be reclaimed.
"""

from __future__ import annotations

import os

_UNLIMITED_BYTES = 1 << 60
"""No limit is a huge number in version 1, the word "max" in version 2."""
_V1 = ("memory.usage_in_bytes", ("memory.limit_in_bytes",), "total_", "total_swap")
_V2 = ("memory.current", ("memory.max", "memory.high"), "", None)


class Room:
    """Headroom of one limit, bytes; negative when swap is needed to live."""

    def __init__(self, name: str, limit_bytes: int, used_bytes: int) -> None:
        self.name = name
        self.limit_bytes = limit_bytes
        self.headroom_bytes = limit_bytes - used_bytes


def rooms(cgroup: str | None, meminfo: str = "/proc/meminfo") -> list[Room]:
    """Every limit that holds now. `cgroup`: an absolute directory, None when only the machine limits.

    A limit that cannot be read is left out; a cgroup that is gone and RAM that cannot be read raise OSError or ValueError.
    """
    found = [_machine(meminfo)]
    directory = cgroup
    while directory is not None:
        room = _of(directory)
        if room is not None:
            found.append(room)
        above = os.path.dirname(directory)
        directory = above if os.path.exists(f"{above}/cgroup.procs") else None
    return found


def dies_together(cgroup: str | None) -> str | None:
    """The cgroup, this or one above, whose processes the OOM killer ends all at once (memory.oom.group); None: there is none."""
    directory = cgroup
    while directory is not None and os.path.exists(f"{directory}/cgroup.procs"):
        try:
            if _text(f"{directory}/memory.oom.group").strip() == "1":
                return directory
        except OSError:
            pass  # Version 1, the root, or no memory controller: there is no such switch.
        directory = os.path.dirname(directory)
    return None


def _of(directory: str) -> Room | None:
    usage, limits, prefix, swap = _V2 if os.path.exists(f"{directory}/memory.current") else _V1
    limit = min((_number(f"{directory}/{name}") for name in limits), default=_UNLIMITED_BYTES)
    if limit >= _UNLIMITED_BYTES:
        return None
    stat = _table(_text(f"{directory}/memory.stat"), " ")
    used = int(_text(f"{directory}/{usage}"))
    used -= stat[f"{prefix}active_file"] + stat[f"{prefix}inactive_file"]
    used -= stat.get("slab_reclaimable", 0)
    used += stat.get(swap, 0) if swap is not None else _number(f"{directory}/memory.swap.current", 0)
    return Room(directory, limit, max(0, used))


def _number(path: str, unknown: int = _UNLIMITED_BYTES) -> int:
    try:
        text = _text(path).strip()
    except OSError:
        return unknown
    return int(text) if text.isdigit() else _UNLIMITED_BYTES


def _machine(meminfo: str) -> Room:
    kib = _table(_text(meminfo), ":")
    try:
        shared = kib["Shmem"]
        lru = kib["Active(file)"] + kib["Inactive(file)"]
        locked = max(0, min(kib["Cached"] + kib["Buffers"] - shared - lru, kib["Unevictable"]))
        used = kib["AnonPages"] + shared + locked + kib["SUnreclaim"] + kib["SwapTotal"] - kib["SwapFree"]
        used += kib.get("Hugetlb", 0)
        return Room("machine", kib["MemTotal"] << 10, used << 10)
    except KeyError as error:
        raise ValueError(f"{meminfo} has no {error}") from error


def _table(text: str, separator: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(separator)
        word = rest.split()[:1]
        if word and word[0].isdigit():
            numbers[name] = int(word[0])
    return numbers


def _text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()
