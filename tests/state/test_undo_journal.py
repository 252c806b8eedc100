from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, Text, usual_kernel
from hypothesis import given
from hypothesis import strategies as st

from moetuned.schema.tunable import Cell, Codec, Place
from moetuned.state.undo_journal import (
    JournalBusyError,
    JournalError,
    default_path,
    is_held,
    open_journal,
    parse_journal,
    read_boot_id,
    read_journal,
)

PLACE = Place("/proc/sys/vm/dirty_ratio", Codec.INTEGER, "/proc/sys/vm/dirty_bytes")
BEFORE, OURS, LATER = Cell(PLACE.path, "20"), Cell(PLACE.path, "10"), Cell(PLACE.path, "7")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "undo.jsonl")


def test_records_hold_what_the_format_promises(path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS)
        journal.applied(1, OURS)
    first, second = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert first == {
        "record": "intend",
        "boot_id": BOOT_ID,
        "seq": 1,
        "tunable": "vm.dirty_ratio",
        "place": {"path": PLACE.path, "codec": "integer", "twin_path": PLACE.twin_path},
        "original": {"path": PLACE.path, "value": "20"},
        "intended": {"path": PLACE.path, "value": "10"},
    }
    assert second["record"] == "applied"


def test_a_second_intention_keeps_the_first_original(path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        journal.applied(journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS), OURS)
    with open_journal(path, BOOT_ID) as journal:
        assert journal.intend("vm.dirty_ratio", PLACE, OURS, LATER) == 2
        held = journal.held["vm.dirty_ratio"]
        assert (held.original, held.intended, set(held.ours)) == (BEFORE, LATER, {OURS, LATER})
        journal.refused(2)
        held = journal.held["vm.dirty_ratio"]
        assert (held.intended, held.settled) == (OURS, True)
        journal.undone(2)
        assert journal.held == {}


def test_a_first_intention_that_was_refused_is_not_ours(path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        journal.refused(journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS))
        assert journal.held == {}


def test_one_holder_and_anybody_may_look(path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS)
        with pytest.raises(JournalBusyError, match="another moetuned process"):
            open_journal(path, BOOT_ID)
        assert list(read_journal(path, BOOT_ID).held) == ["vm.dirty_ratio"]
    with pytest.raises(JournalError, match="is closed"):
        journal.undone(1)
    open_journal(path, BOOT_ID).close()


def test_whether_somebody_holds_it_can_be_seen_without_taking_it(path: str) -> None:
    assert not is_held(path)
    with open_journal(path, BOOT_ID):
        assert is_held(path)
    assert not is_held(path)
    open_journal(path, BOOT_ID).close()


def test_an_untrusted_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(JournalError, match="writable by nobody else"):
        open_journal(str(tmp_path / "undo.jsonl"), BOOT_ID)


@pytest.mark.parametrize(
    "change",
    [
        {"place": {"path": "/etc/passwd", "codec": "integer"}},
        {"place": {"path": "/proc/sys/../../etc/passwd", "codec": "integer"}},
        {"place": {"path": PLACE.path, "codec": "integer", "twin_path": "/etc/passwd"}},
        {"place": {"path": "/sys/block/vda/device/delete", "codec": "integer"}},
        {"place": {"path": "/sys/devices/system/cpu/cpu1/online", "codec": "integer"}},
        {"place": {"path": "/sys/class/net/eth0/mtu", "codec": "integer"}},
        {"place": {"path": "/sys/block/../../tmp/read_ahead_kb", "codec": "integer"}},
        {"place": {"path": "/sys/devices/../../tmp/read_ahead_kb", "codec": "integer"}},
        {"place": {"path": "/sys/class/bdi/./read_ahead_kb", "codec": "integer"}},
        {"place": {"path": "/sys/class/bdi/254:0/read_ahead_kb\n", "codec": "integer"}},
        {"original": {"path": PLACE.path, "value": "20\n"}},
        {"original": {"path": PLACE.path, "value": "|/bin/sh"}},
        {"intended": {"path": PLACE.path, "value": ""}},
        {"original": {"path": "/etc/passwd", "value": "x"}},
        {"intended": {"path": "/sys/other", "value": "x"}},
        {"seq": "one"},
        {"record": "from a later version"},
        {"place": {"path": PLACE.path, "codec": "shell"}},
    ],
)
def test_a_line_that_is_no_record_of_ours_is_a_problem_not_a_write(path: str, change: dict[str, object]) -> None:
    with open_journal(path, BOOT_ID) as journal:
        journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS)
    line = json.loads(Path(path).read_text())
    contents = parse_journal(json.dumps(line | change).encode() + b"\n", BOOT_ID, path)
    assert contents.held == {}
    assert len(contents.problems) == 1
    assert f"{path} line 1" in contents.problems[0]


def test_a_torn_last_line_does_not_count_and_is_cut_off(path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        journal.applied(journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS), OURS)
    whole = Path(path).read_bytes()
    end_of_first = whole.index(b"\n") + 1
    for length in range(len(whole)):
        Path(path).write_bytes(whole[:length])
        contents = read_journal(path, BOOT_ID)
        assert contents.problems == ()
        assert bool(contents.held) == (length >= end_of_first)
        with open_journal(path, BOOT_ID) as journal:
            if journal.held:
                journal.applied(1, OURS)
                assert Path(path).read_bytes() == whole


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    contents = parse_journal(content, BOOT_ID)
    assert contents.held == {}


def test_boot_id() -> None:
    assert read_boot_id(usual_kernel()) == BOOT_ID
    with pytest.raises(JournalError, match="no setting is changed"):
        read_boot_id(FakeKernel())
    with pytest.raises(JournalError, match="is empty"):
        read_boot_id(FakeKernel({"/proc/sys/kernel/random/boot_id": Text("\n")}))


def test_default_path() -> None:
    assert default_path(None) == "/var/lib/moetuned/undo.jsonl"
    assert default_path("") == "/var/lib/moetuned/undo.jsonl"
    assert default_path("/run/x") == "/run/x/undo.jsonl"


def test_what_cannot_be_read_or_removed_says_so(path: str, tmp_path: Path) -> None:
    os.makedirs(path)
    with pytest.raises(JournalError, match="cannot be read"):
        read_journal(path, BOOT_ID)
    with pytest.raises(JournalError, match="cannot be read"):
        open_journal(path, BOOT_ID)
    os.rmdir(path)
    open_journal(path, BOOT_ID).close()


@pytest.mark.parametrize(
    "place",
    [
        "/sys/block/vda/bdi/read_ahead_kb",
        "/sys/block/cciss!c0d0/queue/read_ahead_kb",
        "/sys/class/bdi/btrfs-1/read_ahead_kb",
        "/sys/class/bdi/254:0/read_ahead_kb",
        "/sys/devices/virtual/bdi/7:0/read_ahead_kb",
    ],
)
def test_read_ahead_of_every_kind_of_device_comes_back_from_the_file(path: str, place: str) -> None:
    where = Place(place, Codec.INTEGER, taken_at_open=True)
    with open_journal(path, BOOT_ID) as journal:
        journal.intend("read_ahead_kb x", where, Cell(place, "8192"), Cell(place, "128"))
    held = read_journal(path, BOOT_ID).held["read_ahead_kb x"]
    assert (held.place, held.original.value) == (where, "8192")


@pytest.mark.parametrize("record", ["applied", "probe"])
@pytest.mark.parametrize("cell", [{"path": "/etc/passwd", "value": "7"}, {"path": PLACE.path, "value": "x y"}])
def test_a_later_record_may_not_bring_in_another_file_or_text(path: str, record: str, cell: dict[str, str]) -> None:
    with open_journal(path, BOOT_ID) as journal:
        journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS)
    line = json.dumps({"record": record, "boot_id": BOOT_ID, "seq": 1, "value": cell})
    contents = parse_journal(Path(path).read_bytes() + line.encode() + b"\n", BOOT_ID, path)
    assert len(contents.problems) == 1
    assert contents.held["vm.dirty_ratio"].ours == (OURS,)
    assert contents.held["vm.dirty_ratio"].probed == ()


def test_a_probe_after_a_mark_is_read(path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        seq = journal.intend("vm.dirty_ratio", PLACE, BEFORE, OURS)
        journal.applied(seq, OURS)
        journal.probe(seq, LATER)
    assert read_journal(path, BOOT_ID).held["vm.dirty_ratio"].probed == (LATER,)
