"""How much page cache memory.min keeps below a limit, as the kernel works it out (effective_protection in mm/page_counter.c). Pure.

A cgroup keeps what it uses up to its memory.min, and no more than the one above it. Where those side by side would keep more than that,
each gets its share. What a cgroup may keep beyond those in it that keep something themselves is theirs all together where the mount has
memory_recursiveprot, and nobody's where not. When memory is taken for a limit, what the cgroup of that limit and those above it keep
does not matter (page_counter_calculate_protection): only those in it do.
"""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.decide.unreclaimable import unreclaimable_bytes
from moetuned.schema.sample import KeptMemory


def kept_on_machine(kept: Sequence[KeptMemory], but: str | None = None) -> int:
    """Bytes of page cache that are kept when memory is taken for the machine. `but`: a cgroup that does not count, with all in it."""
    known = {one.directory for one in kept if one.on_machine}
    return _together([one for one in kept if one.on_machine and _above(one) not in known], None, kept, but)


def kept_below(directory: str, kept: Sequence[KeptMemory], but: str | None = None) -> int:
    """The same when it is taken for the limit of a cgroup."""
    return _together([one for one in kept if _above(one) == directory], None, kept, but)


def _together(these: Sequence[KeptMemory], most: int | None, kept: Sequence[KeptMemory], but: str | None) -> int:
    """What cgroups side by side keep, where the one above them lets them keep `most` (None: as much as they ask for)."""
    asked = [min(one.keeps_bytes, one.memory.current_bytes or 0) for one in these]
    total = sum(asked)
    if most is not None and total > most:
        asked = [each * most // total for each in asked]
    return sum(_in(one, each, kept, but) for one, each in zip(these, asked, strict=True))


def _in(one: KeptMemory, keeps: int, kept: Sequence[KeptMemory], but: str | None) -> int:
    if one.directory == but:
        return 0
    inside = [each for each in kept if _above(each) == one.directory]
    found = _together(inside, keeps, kept, but)
    held = unreclaimable_bytes(one.memory)
    if held is None or not one.shares or (but or "").startswith(f"{one.directory}/"):
        return found
    return max(found, keeps - held)


def _above(one: KeptMemory) -> str:
    return one.directory.rpartition("/")[0]
