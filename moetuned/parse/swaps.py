"""/proc/swaps: the swaps that are on (proc_pid_maps(5), swap_show in mm/swapfile.c).

Blank, tab, newline and backslash of a name are octal escapes. A name that is gone ends in " (deleted)", with its blank escaped
too, so a file whose own name ends so looks the same.
"""

from __future__ import annotations

import re

from moetuned.parse.kernel_numbers import whole_number
from moetuned.schema.swap import ActiveSwap

_ESCAPE = re.compile(r"\\([0-7]{3})")
_DELETED = " (deleted)"
_COLUMNS = 5


def parse_swaps(text: str) -> tuple[ActiveSwap, ...]:
    """All swaps in the file's order; lines that are cut or strange are left out. Sizes are in KiB there, bytes here."""
    found = []
    for line in text.split("\n")[1:-1]:
        swap = _swap(line)
        if swap is not None:
            found.append(swap)
    return tuple(found)


def zram_number(swap: ActiveSwap) -> int | None:
    """The number of the zram device that a swap is on, by the end of its path: 0 of /dev/zram0; None for anything else."""
    match = re.fullmatch(r"zram(\d{1,6})", swap.name.rpartition("/")[2], re.ASCII)
    return None if match is None or swap.kind != "partition" else int(match[1])


def _swap(line: str) -> ActiveSwap | None:
    fields = [field for field in re.split(r"[ \t]+", line) if field]
    if len(fields) != _COLUMNS:
        return None
    size, used = whole_number(fields[2]), whole_number(fields[3])
    priority = whole_number(fields[4].removeprefix("-"))
    if size is None or used is None or priority is None:
        return None
    name = _unescape(fields[0])
    deleted = name.endswith(_DELETED)
    return ActiveSwap(
        name=name.removesuffix(_DELETED) if deleted else name,
        kind=fields[1],
        size_bytes=size * 1024,
        used_bytes=used * 1024,
        priority=-priority if fields[4].startswith("-") else priority,
        deleted=deleted,
    )


def _unescape(text: str) -> str:
    """Octal escapes are single bytes of the name; only ASCII ones are ever escaped."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
