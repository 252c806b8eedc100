from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.gguf_bytes import TensorSpec, gguf_bytes, moe_metadata, moe_tensors
from fakes.model_stub import write_stub

from moetuned.host.model_files import ModelFileError, read_model
from moetuned.host.model_outline import read_outline


def test_a_whole_model_is_as_read_model_says(tmp_path: Path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    outline, model = read_outline(str(path)), read_model(str(path))
    assert outline.whole
    assert outline.experts == model.experts
    assert (outline.headers, outline.part_bytes) == (model.headers, model.part_bytes)


def test_the_first_bytes_are_enough(tmp_path: Path):
    whole = write_stub(tmp_path, "qwen3moe-30b")[0]
    head = tmp_path / "head.gguf"
    with whole.open("rb") as file:
        head.write_bytes(file.read(100_000))
    outline = read_outline(str(head))
    assert not outline.whole
    assert outline.present_bytes == 100_000
    assert outline.size_bytes == whole.stat().st_size
    assert outline.experts == read_outline(str(whole)).experts


def test_too_few_bytes_are_named(tmp_path: Path):
    path = tmp_path / "short.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors())[:100])
    with pytest.raises(ModelFileError, match="inside its own header"):
        read_outline(str(path))


def test_any_part_will_do_and_holes_are_not_there(tmp_path: Path):
    paths = write_stub(tmp_path, "qwen3moe-30b", parts=3)
    outlines = [read_outline(str(path)) for path in paths]
    assert outlines[0] == outlines[1] == outlines[2]
    assert outlines[0].paths == tuple(map(str, paths))
    assert outlines[0].present_bytes < 2 << 20
    assert not outlines[0].whole


@pytest.mark.parametrize("ending", [".part", ".aria2", ".crdownload"])
def test_parts_that_are_still_coming_are_found(tmp_path: Path, ending: str):
    paths = write_stub(tmp_path, "qwen3moe-30b", parts=2)
    moved = paths[1].rename(paths[1].with_name(paths[1].name + ending))
    outline = read_outline(str(paths[0]))
    assert outline.paths == (str(paths[0]), str(moved))
    assert read_outline(str(moved)) == outline


def test_a_missing_part_is_named(tmp_path: Path):
    paths = write_stub(tmp_path, "qwen3moe-30b", parts=2)
    paths[1].unlink()
    with pytest.raises(ModelFileError, match=r"00002-of-00002\.gguf .* is missing.*first megabytes"):
        read_outline(str(paths[0]))


def test_another_models_part_is_named(tmp_path: Path):
    first = write_stub(tmp_path, "qwen3moe-30b", parts=2)
    other = tmp_path / "other"
    other.mkdir()
    write_stub(other, "mixtral-8x7b", parts=2)[1].rename(first[1])
    with pytest.raises(ModelFileError, match="mixed"):
        read_outline(str(first[0]))


def test_an_unknown_type_is_named(tmp_path: Path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), [TensorSpec("blk.0.attn_q.weight", (32, 32), 139)]))
    with pytest.raises(ModelFileError, match="unknown type 139"):
        read_outline(str(path))


def test_no_file(tmp_path: Path):
    with pytest.raises(ModelFileError, match="No such file"):
        read_outline(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelFileError, match="no regular file"):
        read_outline(str(tmp_path))


def test_a_renamed_part_is_known_by_its_header(tmp_path: Path):
    paths = write_stub(tmp_path, "qwen3moe-30b", parts=3)
    paths[1].rename(tmp_path / "zz.gguf")
    write_stub(tmp_path, "mixtral-8x7b", parts=3)  # another model's part 2 is not meant
    with pytest.raises(ModelFileError, match=r"00002-of-00003\.gguf .*but zz\.gguf is by its header part 2 .*old name"):
        read_outline(str(paths[2]))


def test_a_renamed_part_of_a_name_that_is_no_text(tmp_path: Path):
    paths = write_stub(tmp_path, "qwen3moe-30b", parts=3)
    paths[1].rename(tmp_path / os.fsdecode(b"z\xff.gguf"))
    with pytest.raises(ModelFileError, match="but z\ufffd\\.gguf is by its header part 2") as caught:
        read_outline(str(paths[2]))
    assert caught.value.sentence.encode()


def test_more_of_a_header_would_do(tmp_path: Path):
    path = tmp_path / "short.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors())[:100])
    with pytest.raises(ModelFileError, match="its first megabytes would do for an estimate"):
        read_outline(str(path))
