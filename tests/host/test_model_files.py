from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
import pytest
from fakes.gguf_bytes import Q4_0, TensorSpec, Typed, gguf_bytes, moe_metadata, moe_tensors, write_parts

from moetuned.gguf.experts import expert_ranges, expert_slices, other_ranges
from moetuned.host.model_files import ModelFileError, read_header, read_model


def refused(path: Path | str) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_model(str(path))
    assert caught.value.path == os.path.abspath(path)
    assert str(caught.value) == f"{caught.value.path}: {caught.value.sentence}"
    assert "\n" not in caught.value.sentence
    return caught.value.sentence


def test_a_single_file(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    model = read_model(str(path))
    assert model.identity.paths == (str(path),)
    assert model.identity.size_bytes == path.stat().st_size
    assert model.identity.unknown is None
    assert model.identity.kv_bytes_per_token == 2 * 2 * (16 + 16) * 2
    assert model.identity.layout is not None
    assert model.identity.layout.expert_bytes + model.identity.layout.other_bytes == path.stat().st_size
    assert model.experts is not None
    assert sum(one.length for one in expert_ranges(model.experts)) == model.identity.layout.expert_bytes


@pytest.mark.parametrize("any_part", [0, 1, 2])
def test_any_part_gives_the_whole_model(tmp_path: Path, any_part: int):
    paths = write_parts(tmp_path)
    model = read_model(str(paths[any_part]))
    assert model.identity.paths == tuple(map(str, paths))
    assert model.part_bytes == tuple(path.stat().st_size for path in paths)
    assert model.identity.layout is not None
    assert model.identity.layout.expert_bytes == 24 * 64 * 32 // 32 * 18
    assert model.identity.layout.expert_bytes + model.identity.layout.other_bytes == model.identity.size_bytes


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paths = write_parts(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert read_model(paths[0].name).identity.paths == tuple(map(str, paths))


def test_parts_behind_links_keep_their_names(tmp_path: Path):
    # As the cache of huggingface_hub: names in one directory, links to hashes in another.
    blobs, names = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    names.mkdir()
    for index, path in enumerate(write_parts(blobs)):
        path.rename(blobs / f"hash{index}")
        (names / path.name).symlink_to(blobs / f"hash{index}")
    model = read_model(str(names / "m-00002-of-00003.gguf"))
    assert os.path.basename(model.identity.paths[0]) == "m-00001-of-00003.gguf"
    assert "was renamed" in refused(blobs / "hash1")


def test_the_bytes_of_an_expert_are_where_the_map_says(tmp_path: Path):
    """An oracle: the gguf package's writer, every expert filled with its own number."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    for add, value in (
        (writer.add_block_count, 2),
        (writer.add_embedding_length, 64),
        (writer.add_head_count, 4),
        (writer.add_expert_count, 3),
        (writer.add_expert_used_count, 1),
    ):
        add(value)
    writer.add_tensor("token_embd.weight", np.full((8, 64), 200, dtype=np.uint8).view(np.float32))
    for layer in range(2):
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", np.full((3, 64), 201, dtype=np.uint8).view(np.float32))
        for kind in ("gate", "up", "down"):
            data = np.zeros((3, 32, 2 * 18), dtype=np.uint8) + np.arange(3, dtype=np.uint8)[:, None, None] + 10 * layer
            writer.add_tensor(f"blk.{layer}.ffn_{kind}_exps.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model, raw = read_model(str(path)), path.read_bytes()
    assert model.experts is not None
    for layer in range(2):
        for expert in range(3):
            slices = expert_slices(model.experts, layer, expert)
            assert len(slices) == 3
            for one in slices:
                assert set(raw[one.offset : one.offset + one.length]) == {expert + 10 * layer}
    rest = b"".join(raw[one.offset : one.offset + one.length] for one in other_ranges(model.experts))
    assert rest.count(bytes([200]) * 512) == 1
    assert bytes([11]) * 100 not in rest


def test_split_files_of_the_gguf_package(tmp_path: Path):
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "qwen3moe", split_max_tensors=2)
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    for index in range(5):
        writer.add_tensor(f"blk.0.t{index}.weight", np.ones((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = read_model(str(tmp_path / "big-00003-of-00003.gguf"))
    assert [len(header.tensors) for header in model.headers] == [2, 2, 1]
    assert model.identity.layout is not None
    assert model.identity.layout.other_bytes == model.identity.size_bytes


def test_a_missing_part_is_named(tmp_path: Path):
    paths = write_parts(tmp_path)
    paths[1].rename(paths[1].with_suffix(".gguf.part"))
    assert "m-00002-of-00003.gguf (of 3 parts) is still downloading" in refused(paths[0])


def test_a_truncated_part_is_named(tmp_path: Path):
    paths = write_parts(tmp_path)
    os.truncate(paths[2], paths[2].stat().st_size - 64)
    assert "m-00003-of-00003.gguf has" in refused(paths[0])
    os.truncate(paths[2], 50)
    assert refused(paths[0]).startswith("part m-00003-of-00003.gguf: it ends after 50 bytes, inside its own header")
    os.truncate(paths[2], 0)
    assert "it ends after 0 bytes" in refused(paths[2])


def test_renamed_parts(tmp_path: Path):
    paths = write_parts(tmp_path)
    paths[0].rename(tmp_path / "x")
    paths[1].rename(paths[0])
    (tmp_path / "x").rename(paths[1])
    assert "m-00001-of-00003.gguf is by its header part 2 of 3" in refused(paths[0])


def test_what_is_no_file(tmp_path: Path):
    assert "cannot be opened: No such file or directory" in refused(tmp_path / "none.gguf")
    assert "is no regular file" in refused(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert "is no regular file" in refused(tmp_path / "fifo")
    with pytest.raises(ModelFileError, match="is no path"):
        read_model("a\0b")
    (tmp_path / "text").write_text("hello, I am a text")
    assert "it is no GGUF file" in refused(tmp_path / "text")


def test_a_model_of_an_unknown_type_is_read_with_its_reason(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), [*moe_tensors(), TensorSpec("blk.1.x.weight", (32,), 139)]) + bytes(64))
    model = read_model(str(path))
    assert model.experts is None
    assert model.identity.layout is None
    assert model.identity.kv_bytes_per_token is not None
    assert "unknown type 139" in (model.identity.unknown or "")


def test_a_projector_has_a_layout_and_no_context(tmp_path: Path):
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "clip"}, [TensorSpec("v.blk.0.ffn_up.weight", (64,), Q4_0)]))
    model = read_model(str(path))
    assert model.identity.layout is not None
    assert model.identity.kv_bytes_per_token is None
    assert "clip.block_count" in (model.identity.unknown or "")


def test_read_header_of_a_file_still_downloading(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors(), with_data=False))
    header, size = read_header(str(path))
    assert header.architecture == "qwen3moe"
    assert size == header.header_bytes < header.promised_bytes


def test_only_headers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A sparse model of 400 GB in seven parts: what is read does not grow with it."""
    experts, layers, parts = 256, 89, 7
    specs = [
        TensorSpec(f"blk.{layer}.ffn_{kind}_exps.weight", (5120, 2048, experts), Q4_0)
        for layer in range(layers)
        for kind in ("gate", "up", "down")
    ]
    for index in range(parts):
        mine = specs[len(specs) * index // parts : len(specs) * (index + 1) // parts]
        metadata = {
            "split.no": Typed("u16", index),
            "split.count": Typed("u16", parts),
            "split.tensors.count": Typed("i32", len(specs)),
        } | (moe_metadata(layers, experts, 8) if index == 0 else {})
        head = gguf_bytes(metadata, mine, with_data=False)
        path = tmp_path / f"big-{index + 1:05}-of-{parts:05}.gguf"
        path.write_bytes(head)
        os.truncate(path, -(-len(head) // 32) * 32 + len(mine) * 5120 * 2048 * experts // 32 * 18)
    read_bytes = 0
    pread = os.pread

    def counting(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read_bytes
        data = pread(descriptor, length, offset)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    model = read_model(str(tmp_path / "big-00004-of-00007.gguf"))
    assert model.identity.size_bytes > 400e9
    assert model.identity.layout is not None
    assert model.identity.layout.expert_bytes == len(specs) * 5120 * 2048 * experts // 32 * 18
    assert read_bytes <= parts * (256 << 10)
