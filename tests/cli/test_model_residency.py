"""Residency of a model part by part, and when it is unknown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.gguf_bytes import gguf_bytes, moe_metadata, moe_tensors, write_parts

from moetuned.cli import model_residency
from moetuned.cli.model_residency import Look, PartResidency, cache_notes, filesystem_of, look_at
from moetuned.host.model_files import ModelFile, read_model
from moetuned.host.page_cache import PAGE_BYTES
from moetuned.schema.sample import RawResidency, Residency


def cold(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return write_parts(tmp_path)


def model_of(path: Path) -> ModelFile:
    model = read_model(str(path))
    assert model.experts is not None
    return model


def test_a_model_that_was_just_written_is_all_there(parts: list[Path]) -> None:
    look = look_at(model_of(parts[1]))
    assert [part.path for part in look.parts] == [str(path) for path in parts]
    assert look.resident_bytes == sum(path.stat().st_size for path in parts)
    assert look.expert_resident_bytes == look.expert_size_bytes
    assert look.by in ("cachestat", "mincore")
    assert look.unknown is None


@pytest.mark.kernel
def test_parts_are_counted_apart(parts: list[Path]) -> None:
    if filesystem_of(model_of(parts[0])) in ("tmpfs", "ramfs"):
        pytest.skip("files are in memory here; set TMPDIR to a directory on a disk")
    model = model_of(parts[0])
    cold(parts[2])
    look = look_at(model)
    assert [part.resident_bytes for part in look.parts[:2]] == [path.stat().st_size for path in parts[:2]]
    # Reading the header brought its first pages back.
    assert look.parts[2].resident_bytes < parts[2].stat().st_size or parts[2].stat().st_size < 128 << 10


def test_residency_for_the_warm_plan() -> None:
    look = Look((PartResidency("a", 100, 50, 60, 20), PartResidency("b", 100, 10, 60, 10)))
    assert look.residency() == Residency(60, 30, 30)
    assert Look((PartResidency("a", 100, 50, None, None),)).residency() == Residency(50, None, None)
    assert Look(unknown="why").residency() is None
    assert Look(unknown="why").expert_size_bytes is None


def counted(monkeypatch: pytest.MonkeyPatch, cached: int, expert_cached: int | None, evicted: int | None = 0) -> None:
    class Scan:
        result = RawResidency(cached, evicted, evicted, expert_cached)
        unknown = None

        def __init__(self, *_arguments: object) -> None:
            pass

        def advance(self, _seconds: float) -> bool:
            return True

        def close(self) -> None:
            pass

    monkeypatch.setattr(model_residency, "ResidencyScan", Scan)


def test_whole_pages_never_make_more_than_there_is(parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch, 10**6, 10**6)
    look = look_at(model_of(parts[0]))
    assert look.resident_bytes == sum(path.stat().st_size for path in parts)
    assert look.expert_resident_bytes == look.expert_size_bytes


def test_experts_and_the_rest_each_stay_within_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(layers=8, experts=8), moe_tensors(layers=8, experts=8)))
    model = model_of(path)
    size = path.stat().st_size
    pages = size // PAGE_BYTES
    assert pages > 10
    for expert_pages in (0, 1, pages - 1):
        counted(monkeypatch, pages - 1, expert_pages)
        (part,) = look_at(model).parts
        assert part.expert_resident_bytes is not None
        assert part.expert_size_bytes is not None
        assert 0 <= part.expert_resident_bytes <= part.expert_size_bytes
        assert 0 <= part.resident_bytes - part.expert_resident_bytes <= size - part.expert_size_bytes


def test_mincore_is_named(parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch, 1, 0, evicted=None)
    assert look_at(model_of(parts[0])).by == "mincore"


def test_a_file_replaced_meanwhile_is_unknown(parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(parts[0])
    original = model_residency.stamps_of
    calls = []

    def stamps(paths: tuple[str, ...]) -> object:
        if calls:
            content = parts[1].read_bytes()
            parts[1].unlink()
            parts[1].write_bytes(content)
        calls.append(paths)
        return original(paths)

    monkeypatch.setattr(model_residency, "stamps_of", stamps)
    look = look_at(model)
    assert look.resident_bytes is None
    assert "was replaced" in (look.unknown or "")
    assert not look.refused


def test_a_file_of_another_size_than_its_header_was_read_with(parts: list[Path]) -> None:
    model = model_of(parts[0])
    with parts[2].open("ab") as file:
        file.write(b"more")
    assert "was replaced" in (look_at(model).unknown or "")


def test_a_part_that_is_gone_is_named(parts: list[Path]) -> None:
    model = model_of(parts[0])
    parts[1].unlink()
    assert parts[1].name in (look_at(model).unknown or "")


def test_who_may_not_know_is_told_so_and_not_a_number(parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(model_residency, "mincore", refuse)
    look = look_at(model_of(parts[0]))
    assert (look.resident_bytes, look.refused) == (None, True)
    assert "sudo" in (look.unknown or "")


def test_what_the_scan_says_is_handed_on(parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch, 0, 0)
    monkeypatch.setattr(model_residency.ResidencyScan, "result", None)
    monkeypatch.setattr(model_residency.ResidencyScan, "unknown", "because")
    assert look_at(model_of(parts[0])).unknown == "because"


@pytest.mark.parametrize(
    ("filesystem", "word"),
    [
        ("zfs", "ARC"),
        ("overlay", "mincore"),
        ("nfs4", "this machine's own"),
        ("fuse.sshfs", "own"),
        ("tmpfs", "memory"),
    ],
)
def test_file_systems_that_need_a_word(filesystem: str, word: str) -> None:
    (note,) = cache_notes(filesystem)
    assert word in note


@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs", None])
def test_file_systems_that_need_none(filesystem: str | None) -> None:
    assert cache_notes(filesystem) == ()
