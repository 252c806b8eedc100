from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import durable_file
from moetuned.schema.swap import SwapKind
from moetuned.state.swap_record import (
    FILE_NAME,
    HeldFile,
    HeldZram,
    Stage,
    SwapRecord,
    SwapRecordError,
    YieldedSwap,
    exists,
    open_store,
)

UUID = "11111111-2222-3333-4444-555555555555"
FILE = HeldFile("/data/swapfile", UUID, 1 << 26, Stage.MADE, "boot-1", "/data", 5, 12, "boot-1")
ZRAM = HeldZram("boot-1", UUID, 1 << 26, Stage.ADDED, (0, 2), 100, 1, 104)


def test_nothing_is_held_and_looking_leaves_no_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert store.record == SwapRecord()
    store.forget_file()
    store.forget_module()
    assert not exists(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_what_is_held_is_read_again_and_the_file_goes_with_the_last_of_it(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.hold_file(FILE)
    store.hold_zram(ZRAM)
    store.hold_module("boot-1")
    assert exists(str(tmp_path))
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    again = open_store(str(tmp_path))
    assert again.record == store.record == SwapRecord(file=FILE, zram=ZRAM, module_boot_id="boot-1")
    again.forget_file()
    again.forget_zram()
    assert open_store(str(tmp_path)).record == SwapRecord(module_boot_id="boot-1")
    again.forget_module()
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_full_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.hold_zram(ZRAM)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_file.os, "pwrite", full)
    with pytest.raises(SwapRecordError, match="No space left on device"):
        store.hold_file(FILE)
    assert store.record == open_store(str(tmp_path)).record == SwapRecord(zram=ZRAM)
    assert os.listdir(tmp_path) == [FILE_NAME]
    store.forget_zram()  # needs no room
    assert os.listdir(tmp_path) == []


def test_forgetting_on_a_full_disk_is_done_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.hold_zram(ZRAM)
    store.hold_file(FILE)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_file.os, "pwrite", full)
    store.forget_file()
    assert store.record == SwapRecord(zram=ZRAM)
    assert open_store(str(tmp_path)).record == SwapRecord(file=FILE, zram=ZRAM)


def test_it_is_flushed_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(durable_file.os, "fsync", lambda descriptor: (events.append("fsync"), fsync(descriptor))[1])
    monkeypatch.setattr(durable_file.os, "replace", lambda old, new: (events.append("rename"), replace(old, new))[1])
    open_store(str(tmp_path)).hold_file(FILE)
    renamed = events.index("rename")
    assert "fsync" in events[:renamed]
    assert "fsync" in events[renamed + 1 :]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"version": 2}',
        b'{"file": {}}',
        b"\xff",
        msgspec.json.encode(SwapRecord(file=msgspec.structs.replace(FILE, path="swapfile"))),
        msgspec.json.encode(SwapRecord(file=msgspec.structs.replace(FILE, path="/data/../etc/passwd"))),
        msgspec.json.encode(SwapRecord(file=msgspec.structs.replace(FILE, path="/data/a\0b"))),
        msgspec.json.encode(SwapRecord(file=msgspec.structs.replace(FILE, path="/data/"))),
        msgspec.json.encode(SwapRecord(file=msgspec.structs.replace(FILE, uuid="../../x"))),
        msgspec.json.encode(SwapRecord(file=msgspec.structs.replace(FILE, inode=None))),
        msgspec.json.encode(SwapRecord(file=msgspec.structs.replace(FILE, size_bytes=0))),
        msgspec.json.encode(SwapRecord(zram=msgspec.structs.replace(ZRAM, number=-1))),
        msgspec.json.encode(SwapRecord(zram=msgspec.structs.replace(ZRAM, number=None))),
        msgspec.json.encode(SwapRecord(zram=msgspec.structs.replace(ZRAM, sequence=None))),
        msgspec.json.encode(SwapRecord(zram=msgspec.structs.replace(ZRAM, uuid="no"))),
        b"x" * 100000,
    ],
)
def test_what_is_damaged_is_said_and_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(SwapRecordError, match=FILE_NAME):
        open_store(str(tmp_path))
    assert (tmp_path / FILE_NAME).read_bytes() == content


def test_a_record_of_somebody_else_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(msgspec.json.encode(SwapRecord(file=FILE)))
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "real")
    with pytest.raises(SwapRecordError, match="cannot be read"):
        open_store(str(tmp_path))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_one_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, FILE_NAME).write_bytes(content)
        said = ""
        try:
            open_store(directory)
        except SwapRecordError as error:
            said = str(error)
        assert not said or FILE_NAME in said


def test_the_temporary_name_is_of_this_file_alone() -> None:
    assert FILE.temporary == f"/data/.swapfile.moetuned-{UUID}"
    assert msgspec.structs.replace(FILE, path="/swapfile").temporary == f"/.swapfile.moetuned-{UUID}"


@given(st.lists(st.integers(0, 20), unique=True))
def test_the_expected_number_is_the_lowest_free(existed: list[int]) -> None:
    number = msgspec.structs.replace(ZRAM, existed=tuple(existed)).expected
    assert number not in existed
    assert set(range(number)) <= set(existed)


def test_the_rest_of_a_write_is_something_to_clear_up_and_goes_when_the_holder_opens(tmp_path: Path) -> None:
    rest = tmp_path / f"{FILE_NAME}.new"
    rest.write_text("{")
    assert exists(str(tmp_path))
    open_store(str(tmp_path))
    assert rest.exists()
    assert open_store(str(tmp_path), held=True).record == SwapRecord()
    assert not exists(str(tmp_path))


@pytest.mark.parametrize("kind", list(SwapKind))
def test_what_was_yielded_outlives_the_thing_itself(tmp_path: Path, kind: SwapKind) -> None:
    store = open_store(str(tmp_path))
    store.hold_file(FILE)
    store.yield_to(kind, YieldedSwap("boot-1", "auto", "somebody removed it"))
    store.forget_file()
    again = open_store(str(tmp_path))
    assert again.yielded(kind) == YieldedSwap("boot-1", "auto", "somebody removed it")
    assert [again.yielded(each) is None for each in SwapKind].count(True) == 1
    again.yield_to(kind, None)
    assert not exists(str(tmp_path))
