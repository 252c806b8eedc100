"""What memory.min keeps, against what the kernel's effective_protection says of the same cgroups."""

from __future__ import annotations

from moetuned.decide.kept_cache import kept_below, kept_on_machine
from moetuned.schema.sample import CgroupMemory, KeptMemory

ROOT = "/sys/fs/cgroup"


def kept(name: str, keeps: int, current: int | None, held: int = 0, **more: bool) -> KeptMemory:
    """All but `held` of `current` is page cache."""
    cache = None if current is None else current - held
    memory = CgroupMemory(2, current_bytes=current, reclaimable_file_bytes=cache)
    return KeptMemory(f"{ROOT}/{name}", keeps, memory=memory, **more)


def test_side_by_side_they_keep_no_more_than_the_one_above_each_its_share() -> None:
    two = (kept("a/x", 40, 40), kept("a/y", 40, 40, 30))
    assert kept_on_machine((kept("a", 100, 80, 30), *two)) == 50
    assert kept_on_machine((kept("a", 40, 80, 30, shares=False), *two)) == 20, "20 each, and 30 of y are held anyway"


def test_what_one_of_many_asks_for_does_not_undo_what_the_one_above_keeps() -> None:
    small = kept("a/daemon", 1, 1, 1)
    assert kept_on_machine((kept("a", 50, 90, 11), small)) == 39
    assert kept_on_machine((kept("a", 50, 90, 11, shares=False), small)) == 0


def test_a_limit_counts_what_those_in_it_keep_whatever_those_above_do() -> None:
    inner = kept("a/b/x", 30, 50, 10, on_machine=False)
    assert kept_on_machine((inner,)) == 0
    assert kept_below(f"{ROOT}/a/b", (inner,)) == 20
    assert kept_below(f"{ROOT}/a", (inner,)) == 0
    more = (kept("a", 5, 60, 10), kept("a/b", 5, 60, 10), kept("a/b/x", 30, 50, 10))
    assert kept_below(f"{ROOT}/a/b", more) == 20
    assert kept_on_machine(more) == 0


def test_what_is_kept_in_one_makes_way_for_what_is_in_it() -> None:
    found = (kept("a", 60, 70, 10), kept("a/own", 30, 35, 5), kept("a/other", 30, 35, 5), kept("b", 7, 9))
    assert kept_on_machine(found) == 50 + 7
    assert kept_on_machine(found, f"{ROOT}/a/own") == 25 + 7
    assert kept_below(f"{ROOT}/a", found, f"{ROOT}/a/own") == 25
    assert kept_on_machine(found, f"{ROOT}/b") == 50


def test_where_its_use_is_unknown_it_keeps_nothing() -> None:
    assert kept_on_machine((kept("a", 60, None),)) == 0
