"""Whether a model file still is the one it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fakes.gguf_bytes import gguf_bytes, moe_metadata, moe_tensors, write_parts
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import model_stamp as module
from moetuned.host.model_files import ModelFileError, read_model
from moetuned.host.model_stamp import model_stamp, stamp_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    return path


def test_the_same_files_have_the_same_stamp(path: Path) -> None:
    stamp = model_stamp(read_model(str(path)))
    assert stamp == model_stamp(read_model(str(path)))
    status = path.stat()
    assert (stamp.part_bytes, stamp.modified_ns) == ((status.st_size,), (status.st_mtime_ns,))


def test_another_modification_time_is_another_model(path: Path) -> None:
    model = read_model(str(path))
    before = model_stamp(model)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    after = model_stamp(model)
    assert before != after
    assert before.header_hash == after.header_hash


def test_another_header_of_the_same_size_and_time_is_another_model(path: Path) -> None:
    before, status = model_stamp(read_model(str(path))), path.stat()
    path.write_bytes(gguf_bytes(moe_metadata(rope__freq_base=1.0), moe_tensors()))
    old = gguf_bytes(moe_metadata(rope__freq_base=2.0), moe_tensors())
    one = model_stamp(read_model(str(path)))
    path.write_bytes(old)
    os.utime(path, ns=(0, one.modified_ns[0]))
    two = model_stamp(read_model(str(path)))
    assert (one.part_bytes, one.modified_ns) == (two.part_bytes, two.modified_ns)
    assert one.header_hash != two.header_hash
    assert before.part_bytes == (status.st_size,)


def test_all_parts_count(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    before = model_stamp(read_model(str(paths[0])))
    assert len(before.part_bytes) == len(before.modified_ns) == 3
    os.utime(paths[2], ns=(0, 1))
    after = model_stamp(read_model(str(paths[0])))
    assert after.modified_ns == (*before.modified_ns[:2], 1)


def test_weights_are_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_model(str(path))
    read: list[int] = []
    real = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        read.append(offset + length)
        return real(descriptor, length, offset)

    monkeypatch.setattr(module.os, "pread", counted)
    model_stamp(model)
    assert max(read) == model.headers[0].header_bytes


def test_a_file_that_is_no_longer_that_one_is_refused(path: Path, tmp_path: Path) -> None:
    model = read_model(str(path))
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(ModelFileError, match="not the file it was"):
        model_stamp(model)
    path.unlink()
    with pytest.raises(ModelFileError, match="cannot be read"):
        model_stamp(model)
    os.mkfifo(path)
    with pytest.raises(ModelFileError, match="not the file it was"):
        model_stamp(model)


def test_a_file_that_changes_while_it_is_read_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_model(str(path))
    real = os.pread

    def written(descriptor: int, length: int, offset: int) -> bytes:
        os.utime(path, ns=(0, 5))
        return real(descriptor, length, offset)

    monkeypatch.setattr(module.os, "pread", written)
    with pytest.raises(ModelFileError, match="is being written"):
        model_stamp(model)
    monkeypatch.setattr(module.os, "pread", lambda *_: b"")
    with pytest.raises(ModelFileError, match="shorter"):
        model_stamp(model)


@given(cut=st.integers(0, 20), other=st.integers(0, 20))
def test_where_one_header_ends_is_part_of_the_hash(
    cut: int, other: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same bytes, cut elsewhere."""
    directory = tmp_path_factory.mktemp("parts")
    hashes = []
    for where in (cut, other):
        for name, raw in (("a", b"x" * where), ("b", b"x" * (20 - where))):
            (directory / name).write_bytes(raw + b"y" * (30 - len(raw)))
        paths = [str(directory / name) for name in "ab"]
        hashes.append(stamp_of(paths, [where, 20 - where], [30, 30]).header_hash)
    shutil.rmtree(directory)
    assert (hashes[0] == hashes[1]) == (cut == other)
