from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.swap_plan import asked_for, plan_swap
from moetuned.schema.swap import ActiveSwap, OurSwap, Swap, SwapFacts, SwapFileFacts, SwapKind, SwapStep, SwapStepKind

GIB, MIB = 1 << 30, 1 << 20
PATH = "/var/lib/moetuned/swapfile"
FILE = Swap(file=PATH)
GOOD = SwapFileFacts(
    filesystem="ext4", disks=("nvme0n1",), rotational=False, free_bytes=500 * GIB, total_bytes=1000 * GIB
)
NOTHING = OurSwap()
ZRAM_ROW = ActiveSwap("/dev/zram0", "partition", 4 * GIB, 0, 100)


def facts(memory: int | None = 32 * GIB, **place: Any) -> SwapFacts:
    return SwapFacts(memory_bytes=memory, file=msgspec.structs.replace(GOOD, **place))


def only(wish: Swap, known: SwapFacts, ours: OurSwap = NOTHING) -> SwapStep:
    (step,) = plan_swap(wish, known, ours)
    return step


def test_nothing_is_wished_for() -> None:
    assert plan_swap(None, facts()) == ()


@pytest.mark.parametrize(
    ("memory", "free", "size"),
    [
        (32 * GIB, 500 * GIB, 8 * GIB),
        (4 * GIB, 500 * GIB, 2 * GIB),
        (512 * GIB, 500 * GIB, 16 * GIB),
        (32 * GIB, 50 * GIB, 5 * GIB),
        (32 * GIB, 20 * GIB, 2 * GIB),
    ],
)
def test_the_computed_size_of_a_file_is_explained(memory: int, free: int, size: int) -> None:
    step = only(FILE, facts(memory, free_bytes=free))
    assert (step.kind, step.size_bytes, step.path, step.filesystem) == (SwapStepKind.MAKE, size, PATH, "ext4")
    assert ("a tenth of" in step.why) == (size < min(max(memory // 4, 2 * GIB), 16 * GIB))
    assert step.wanted in step.why
    assert step.risk


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"rotational": True}, "rotational disk (nvme0n1)"),
        ({"rotational": None, "unknown": "it is on a btrfs of 2 devices"}, "it is on a btrfs of 2 devices"),
        ({"rotational": None}, "not known whether"),
        ({"filesystem": "overlay"}, "overlay file system cannot hold"),
        ({"filesystem": "zfs"}, "ZFS cannot"),
        ({"filesystem": "nfs4"}, "over the network"),
        ({"filesystem": "tmpfs"}, "in memory itself"),
        ({"filesystem": "f2fs"}, "is on f2fs: whether it can hold a swap file is not known here"),
        ({"filesystem": None, "unknown": "no such file"}, "not known (no such file)"),
        ({"free_bytes": 19 * GIB}, "not enough room: a tenth of the 19.0 GiB free"),
        ({"free_bytes": None}, "free room"),
        ({"problem": "/srv may be written by others"}, "/srv may be written by others"),
        ({"taken": True}, "exists and was not made by moetuned"),
        ({"taken": True, "active": True}, "a swap in use that moetuned did not make"),
    ],
)
def test_where_there_is_no_swap_file(place: dict[str, Any], reason: str) -> None:
    step = only(FILE, facts(**place))
    assert step.kind is SwapStepKind.SKIPPED
    assert reason in step.reason


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (SwapFacts(memory_bytes=GIB, active=None, file=GOOD), "no /proc/swaps"),
        (SwapFacts(memory_bytes=GIB, refusal="this is a container", file=GOOD), "this is a container"),
        (SwapFacts(memory_bytes=None, file=GOOD), "not known how much RAM"),
    ],
)
def test_machines_without_swap(known: SwapFacts, reason: str) -> None:
    steps = plan_swap(Swap(file=PATH, zram="auto"), known)
    assert [step.kind for step in steps] == [SwapStepKind.SKIPPED] * 2
    assert all(reason in step.reason for step in steps)


def test_a_configured_size_must_leave_room() -> None:
    wish = Swap(file=PATH, size="10GiB", priority=3)
    step = only(wish, facts(free_bytes=12 * GIB, total_bytes=20 * GIB))
    assert (step.size_bytes, step.wanted, step.priority) == (10 * GIB, "10.0 GiB, priority 3", 3)
    assert "as tuning.swap.size says" in step.why
    assert "less than 1.0 GiB" in only(wish, facts(free_bytes=11 * GIB - 1, total_bytes=20 * GIB)).reason
    assert "less than 50.0 GiB" in only(wish, facts(free_bytes=59 * GIB)).reason


def test_what_is_ours_is_kept_and_its_computed_size_is_not_computed_anew() -> None:
    ours = OurSwap(file_path=PATH, file_bytes=3 * GIB)
    for wish in (FILE, Swap(file=PATH, size="3GiB")):
        step = only(wish, facts(taken=True, active=True, rotational=None, free_bytes=0), ours)
        assert (step.kind, step.size_bytes) == (SwapStepKind.KEEP, 3 * GIB)


def test_another_size_is_made_in_the_room_of_the_old() -> None:
    ours = OurSwap(file_path=PATH, file_bytes=10 * GIB)
    wish = Swap(file=PATH, size="9GiB")
    known = facts(taken=True, active=True, free_bytes=GIB, total_bytes=20 * GIB)
    assert only(wish, known, ours).kind is SwapStepKind.MAKE
    assert only(wish, known).kind is SwapStepKind.SKIPPED


def test_btrfs_says_what_it_forbids() -> None:
    assert "snapshotted" in only(FILE, facts(filesystem="btrfs")).risk


@pytest.mark.parametrize(("memory", "size"), [(16 * GIB, 2 * GIB), (256 * GIB, 4 * GIB), (1000 * MIB, 125 * MIB)])
def test_the_computed_size_of_zram(memory: int, size: int) -> None:
    step = only(Swap(zram="auto"), SwapFacts(memory_bytes=memory))
    assert (step.kind, step.size_bytes, step.priority) == (SwapStepKind.MAKE, size, 100)
    assert "lost to experts" in step.why


def test_zram_comes_first_and_has_the_higher_priority() -> None:
    zram, file = plan_swap(Swap(file=PATH, zram="1GiB", priority=500), facts())
    assert (zram.name, zram.priority, file.priority) == ("swap zram", 501, 500)


def test_somebody_elses_zram_is_left_alone() -> None:
    step = only(Swap(zram="auto"), SwapFacts(memory_bytes=GIB, active=(ZRAM_ROW,)))
    assert step.kind is SwapStepKind.ALREADY
    assert "/dev/zram0" in step.reason
    ours = OurSwap(zram_number=0, zram_bytes=GIB)
    assert only(Swap(zram="2GiB"), SwapFacts(memory_bytes=8 * GIB, active=(ZRAM_ROW,)), ours).kind is SwapStepKind.MAKE
    assert only(Swap(zram="auto"), SwapFacts(active=(ZRAM_ROW,)), ours).kind is SwapStepKind.KEEP


def test_zram_that_cannot_be() -> None:
    assert only(Swap(zram="auto"), SwapFacts(memory_bytes=GIB, zram_refusal="no zram")).reason == "no zram"
    assert "too little RAM" in only(Swap(zram="auto"), SwapFacts(memory_bytes=500 * MIB)).reason
    assert "more than the 1.0 GiB of RAM" in only(Swap(zram="2GiB"), SwapFacts(memory_bytes=GIB)).reason


def test_a_virtual_disk_does_not_tell_and_the_risk_says_so() -> None:
    step = only(FILE, facts(rotational=None, virtual=True))
    assert step.kind is SwapStepKind.MAKE
    assert "its virtual disk does not tell what it is on" in step.risk


@given(
    memory=st.one_of(st.none(), st.integers(0, 1 << 45)),
    free=st.one_of(st.none(), st.integers(0, 1 << 48)),
    total=st.one_of(st.none(), st.integers(0, 1 << 48)),
    rotational=st.sampled_from((None, True, False)),
    kind=st.sampled_from((None, "ext4", "btrfs", "xfs", "zfs", "overlay")),
    size=st.one_of(st.just("auto"), st.integers(64 << 20, 1 << 40)),
)
def test_a_file_is_made_only_where_all_is_known_and_well(
    memory: int | None, free: int | None, total: int | None, rotational: bool | None, kind: str | None, size: str | int
) -> None:
    step = only(
        Swap(file=PATH, size=size),
        facts(memory, free_bytes=free, total_bytes=total, rotational=rotational, filesystem=kind),
    )
    if step.kind is SwapStepKind.SKIPPED:
        assert step.reason
        return
    assert step.kind is SwapStepKind.MAKE
    assert rotational is False
    assert kind in ("ext4", "btrfs", "xfs")
    assert free is not None
    assert step.size_bytes % MIB == 0
    assert free - step.size_bytes >= GIB
    if size == "auto":
        assert 2 * GIB <= step.size_bytes <= 16 * GIB
        assert step.size_bytes <= free // 10


@pytest.mark.parametrize(
    ("wish", "known", "ours", "stays"),
    [
        (
            Swap(zram="auto"),
            facts(),
            OurSwap(zram_number=1, zram_bytes=96 * MIB),
            "stays 96.0 MiB until it is made anew",
        ),
        (Swap(zram="auto"), facts(), OurSwap(zram_number=1, zram_bytes=4 * GIB), ""),
        (Swap(zram="96MiB"), facts(), OurSwap(zram_number=1, zram_bytes=96 * MIB), ""),
        (FILE, facts(), OurSwap(file_path=PATH, file_bytes=GIB), "stays 1.0 GiB until it is made anew"),
        (FILE, facts(), OurSwap(file_path=PATH, file_bytes=8 * GIB), ""),
        (FILE, facts(free_bytes=40 * GIB), OurSwap(file_path=PATH, file_bytes=4 * GIB), ""),
        (FILE, facts(free_bytes=GIB), OurSwap(file_path=PATH, file_bytes=GIB), ""),
    ],
)
def test_a_computed_size_is_not_taken_up_by_what_is_there_and_that_is_said(
    wish: Swap, known: SwapFacts, ours: OurSwap, stays: str
) -> None:
    step = only(wish, known, ours)
    assert step.kind is SwapStepKind.KEEP
    assert ("until it is made anew" in step.why) == bool(stays)
    assert stays in step.why


def test_what_somebody_took_away_is_left_to_them() -> None:
    wish = Swap(file=PATH, zram="auto")
    zram, file = plan_swap(wish, facts(), OurSwap(zram_yielded="somebody reset it", file_yielded="somebody removed it"))
    assert [(step.kind, step.reason) for step in (zram, file)] == [
        (SwapStepKind.YIELDED, "somebody reset it"),
        (SwapStepKind.YIELDED, "somebody removed it"),
    ]
    assert [step.kind for step in plan_swap(wish, facts(), OurSwap(zram_yielded="x"))] == ["yielded", "make"]


def test_what_the_config_says_of_each_kind_is_compared_alone() -> None:
    wish = Swap(file=PATH, size="2GiB", zram="1GiB", priority=3)
    changes = {"size": "3GiB", "priority": 4, "file": "/swap", "zram": "2GiB"}
    for name, value in changes.items():
        other = msgspec.structs.replace(wish, **{name: value})
        changed = {kind for kind in SwapKind if asked_for(wish, kind) != asked_for(other, kind)}
        assert changed == {SwapKind.ZRAM if name == "zram" else SwapKind.FILE}
    assert {asked_for(each, kind) for each in (None, Swap()) for kind in SwapKind} == {""}
