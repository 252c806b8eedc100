"""What a journal may say, what it comes to, and that journals of earlier versions still say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.fake_kernel import BOOT_ID

from moetuned.schema.tunable import Bound, Cell, Codec, Place
from moetuned.state.undo_journal import parse_journal
from moetuned.state.undo_records import (
    Applied,
    Held,
    Intend,
    Refused,
    SideEffect,
    Undo,
    Undone,
    Yielded,
    check,
    fold,
    interrupted,
)

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
MIN = Place("/proc/sys/vm/min_free_kbytes", Codec.INTEGER)
PLACE = Place(THP, Codec.CHOICE)
A, B = Cell(MIN.path, "67584"), Cell(MIN.path, "19829")
INTEND = Intend(
    boot_id=BOOT_ID,
    seq=1,
    tunable="thp",
    place=PLACE,
    original=Cell(THP, "madvise"),
    intended=Cell(THP, "never"),
    asked_by="profile moe-offload",
    beside=(SideEffect(MIN, A),),
)


def folded(*records: Any) -> tuple[dict[str, Held], dict[str, Yielded]]:
    held: dict[str, Held] = {}
    yields: dict[str, Yielded] = {}
    for record in records:
        check(record, held)
        fold(held, yields, record)
    return held, yields


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((), True),
        ((Applied(boot_id=BOOT_ID, seq=1, value=Cell(THP, "never")),), False),
        ((Applied(boot_id=BOOT_ID, seq=1, value=Cell(THP, "never")), Undo(boot_id=BOOT_ID, seq=1)), True),
    ],
)
def test_what_was_begun_and_not_ended_is_interrupted(records: tuple[Any, ...], expected: bool) -> None:
    held, _ = folded(INTEND, *records)
    assert interrupted(held["thp"]) is expected


def yielded(seq: int = 2, **more: Any) -> Yielded:
    fields = {"tunable": "thp", "place": PLACE, "value": Cell(THP, "always"), "intended": Cell(THP, "never")} | more
    return Yielded(boot_id=BOOT_ID, seq=seq, **fields)


def test_side_effects_through_a_setting_life() -> None:
    held, _ = folded(INTEND)
    assert (held["thp"].beside, held["thp"].settled) == ((SideEffect(MIN, A),), False)
    applied = Applied(boot_id=BOOT_ID, seq=1, value=Cell(THP, "never"), beside=(B,))
    held, _ = folded(INTEND, applied)
    assert held["thp"].beside == (SideEffect(MIN, A, B),)
    undo = Undo(boot_id=BOOT_ID, seq=1, beside=(A,))
    held, _ = folded(INTEND, applied, undo)
    assert (held["thp"].undoing, held["thp"].targets) == (True, (A,))
    held, _ = folded(INTEND, applied, undo, applied)
    assert (held["thp"].undoing, held["thp"].targets) == (False, ())
    held, _ = folded(INTEND, applied, undo, Undone(boot_id=BOOT_ID, seq=1))
    assert held == {}


def test_a_yield_ends_the_hold_and_an_intention_ends_the_yield() -> None:
    held, yields = folded(INTEND, yielded())
    assert (held, list(yields)) == ({}, ["thp"])
    again = Intend(
        boot_id=BOOT_ID, seq=3, tunable="thp", place=PLACE, original=Cell(THP, "always"), intended=Cell(THP, "never")
    )
    held, yields = folded(INTEND, yielded(), again)
    assert (held["thp"].original.value, yields) == ("always", {})


def test_what_stood_there_because_of_moetuned_itself() -> None:
    first = Intend(boot_id=BOOT_ID, seq=1, tunable="min", place=MIN, original=A, intended=Cell(MIN.path, "7"), stood=B)
    held, _ = folded(first)
    assert (held["min"].stood, B in held["min"].ours) == (B, False)
    held, _ = folded(first, Applied(boot_id=BOOT_ID, seq=1, value=Cell(MIN.path, "7")))
    assert held["min"].stood is None
    assert folded(first, Refused(boot_id=BOOT_ID, seq=1)) == ({}, {})


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"boot_id": BOOT_ID} | record).encode() + b"\n" for record in records)


def test_a_journal_of_the_first_version_is_read() -> None:
    content = lines(
        {
            "record": "intend",
            "seq": 1,
            "tunable": "thp",
            "place": {"path": THP, "codec": "choice"},
            "original": {"path": THP, "value": "madvise"},
            "intended": {"path": THP, "value": "never"},
        },
        {"record": "applied", "seq": 1, "value": {"path": THP, "value": "never"}},
        {"record": "undo", "seq": 1},
    )
    contents = parse_journal(content, BOOT_ID)
    entry = contents.held["thp"]
    assert (contents.problems, contents.yields) == ((), {})
    assert (entry.original.value, entry.beside, entry.bound, entry.undoing) == ("madvise", (), Bound.SET, True)


def one(path: str, codec: str, value: str, **place: str) -> bytes:
    cell = {"path": path, "value": value}
    where = {"path": path, "codec": codec} | place
    return lines({"record": "intend", "seq": 1, "tunable": "x", "place": where, "original": cell, "intended": cell})


LOW = "/sys/fs/cgroup/system.slice/llama.service/memory.low"
MIN_FILE = "/sys/fs/cgroup/system.slice/llama.service/memory.min"
WEIGHT = "/sys/fs/cgroup/system.slice/llama.service/io.weight"


@pytest.mark.parametrize(
    ("path", "codec", "value", "place"),
    [
        ("/sys/block/nvme0n1/queue/scheduler", "choice", "mq-deadline", {}),
        ("/sys/block/vda/queue/nr_requests", "integer", "64", {}),
        ("/sys/block/vda/queue/wbt_lat_usec", "integer", "-1", {}),
        ("/sys/block/vda/queue/read_ahead_kb", "integer", "128", {}),
        ("/sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda/queue/scheduler", "choice", "none", {}),
        (LOW, "limit", "max", {}),
        (LOW, "limit", "1073741824", {"unit": "llama.service", "unit_property": "MemoryLow"}),
        (MIN_FILE, "limit", "0", {}),
        (MIN_FILE, "limit", "50331648", {"unit": "moetuned.slice", "unit_property": "MemoryMin"}),
        (WEIGHT, "weight", "200", {"unit": "llama@1.service", "unit_property": "IOWeight"}),
        ("/sys/fs/cgroup/my\\x2dbox.slice/user@0.service/io.weight", "weight", "1", {}),
    ],
)
def test_what_may_be_written_back(path: str, codec: str, value: str, place: dict[str, str]) -> None:
    contents = parse_journal(one(path, codec, value, **place), BOOT_ID)
    assert contents.problems == ()
    assert contents.held["x"].original == Cell(path, value)


@pytest.mark.parametrize(
    ("path", "codec", "value", "place"),
    [
        ("/sys/block/vda/queue/add_random", "integer", "1", {}),
        ("/sys/block/vda/queue/../../../power/state", "choice", "mem", {}),
        ("/sys/devices/system/cpu/cpu1/online", "integer", "0", {}),
        ("/sys/fs/cgroup/cgroup.kill", "integer", "1", {}),
        ("/sys/fs/cgroup/a/cgroup.procs", "integer", "1", {}),
        ("/sys/fs/cgroup/a/memory.max", "limit", "max", {}),
        ("/sys/fs/cgroup/memory.low", "limit", "max", {}),
        ("/sys/fs/cgroup/memory.min", "limit", "0", {}),
        (LOW, "limit", "0", {"unit": "llama.service", "unit_property": "MemoryMin"}),
        (MIN_FILE, "limit", "0", {"unit": "llama.service", "unit_property": "MemoryLow"}),
        ("/sys/fs/cgroup/a/../b/memory.low", "limit", "max", {}),
        ("/sys/fs/cgroup/a b/memory.low", "limit", "max", {}),
        (LOW, "limit", "infinity", {}),
        (LOW, "limit", "-1", {}),
        (WEIGHT, "weight", "default 100", {}),
        (WEIGHT, "weight", "", {}),
        (LOW, "limit", "max", {"unit": "llama.service"}),
        (LOW, "limit", "max", {"unit_property": "MemoryLow"}),
        (LOW, "limit", "max", {"unit": "llama.service", "unit_property": "ExecStart"}),
        (LOW, "limit", "max", {"unit": "llama.service", "unit_property": "IOWeight"}),
        (LOW, "limit", "max", {"unit": "--force.service", "unit_property": "MemoryLow"}),
        (LOW, "limit", "max", {"unit": "a;b.service", "unit_property": "MemoryLow"}),
        (LOW, "limit", "max", {"unit": "a.service\n", "unit_property": "MemoryLow"}),
        (LOW, "limit", "max", {"unit": "a.mount", "unit_property": "MemoryLow"}),
        (LOW, "limit", "max", {"unit": "x" * 300 + ".service", "unit_property": "MemoryLow"}),
        (THP, "choice", "never", {"unit": "a.service", "unit_property": "MemoryLow"}),
    ],
)
def test_what_may_not(path: str, codec: str, value: str, place: dict[str, str]) -> None:
    contents = parse_journal(one(path, codec, value, **place), BOOT_ID)
    assert contents.held == {}
    assert len(contents.problems) == 1


CELL = {"path": MIN.path, "value": "1"}
GOOD = json.loads(one(THP, "choice", "never")) | {
    "beside": [{"place": {"path": MIN.path, "codec": "integer"}, "original": CELL}]
}


@pytest.mark.parametrize(
    "more",
    [
        {
            "record": "applied",
            "value": {"path": THP, "value": "never"},
            "beside": [{"path": "/etc/passwd", "value": "1"}],
        },
        {"record": "applied", "value": {"path": THP, "value": "never"}, "beside": [{"path": MIN.path, "value": "x"}]},
        {"record": "undo", "beside": [{"path": "/proc/sys/vm/swappiness", "value": "1"}]},
        {"record": "undo", "beside": [{"path": MIN.path, "value": "max"}]},
        GOOD | {"beside": [{"place": {"path": "/etc/passwd", "codec": "integer"}, "original": CELL}]},
        GOOD | {"beside": [{"place": {"path": MIN.path, "codec": "integer"}, "original": {"path": THP, "value": "1"}}]},
        GOOD
        | {
            "beside": [
                {"place": {"path": MIN.path, "codec": "integer"}, "original": CELL, "made": CELL | {"value": "$"}}
            ]
        },
        GOOD | {"stood": {"path": "/etc/passwd", "value": "1"}},
        {
            "record": "yielded",
            "tunable": "x",
            "place": {"path": "/etc/passwd", "codec": "integer"},
            "value": CELL,
            "intended": CELL,
        },
        {
            "record": "yielded",
            "tunable": "x",
            "place": {"path": THP, "codec": "choice"},
            "value": CELL,
            "intended": CELL,
        },
    ],
)
def test_what_is_beside_is_checked_as_strictly(more: dict[str, Any]) -> None:
    contents = parse_journal(lines(GOOD, {"seq": 1} | more), BOOT_ID)
    assert len(contents.problems) == 1
    assert contents.yields == {}
    assert contents.held["x"].beside == (SideEffect(MIN, Cell(MIN.path, "1")),)


def test_a_record_of_what_is_not_held_says_nothing() -> None:
    contents = parse_journal(lines({"record": "undo", "seq": 9, "beside": [CELL]}), BOOT_ID)
    assert (contents.held, contents.problems) == ({}, ())
