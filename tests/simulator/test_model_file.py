import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from moetuned.gguf.experts import expert_slices, layout
from moetuned.gguf.kv_cache import kv_bytes_per_token
from moetuned.host.model_files import read_model
from moetuned.simulator import model_file
from moetuned.simulator.model_file import WriteError, write_model
from moetuned.simulator.model_shape import ModelShape, ShapeError, data_bytes, expert_slice_bytes, tensors
from moetuned.simulator.model_shape import kv_bytes_per_token as shape_kv_bytes

SHAPE = ModelShape(
    layers=2, experts=6, experts_used=2, embedding=64, feed_forward=32, heads=2, heads_kv=1, key_length=32
)


def nothing(done, total):
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "made.gguf")
    write_model(path, SHAPE, 1, nothing)
    return path


def test_our_own_reader_finds_the_layout_that_was_asked_for(made):
    model = read_model(made)
    found = layout(model.experts)
    assert (found.layers, found.experts, found.experts_used) == (2, 6, 2)
    assert found.expert_slice_bytes == expert_slice_bytes(SHAPE)
    assert found.expert_bytes == 2 * 6 * 3 * expert_slice_bytes(SHAPE)
    assert found.expert_bytes + found.other_bytes == os.path.getsize(made)
    assert len(expert_slices(model.experts, 1, 5)) == 3
    assert kv_bytes_per_token(model.headers[0].metadata) == shape_kv_bytes(SHAPE)


def test_the_gguf_package_reads_the_same_tensors_and_sane_weights(made):
    reader = gguf.GGUFReader(made)
    wanted = {tensor.name: tensor for tensor in tensors(SHAPE)}
    assert [tensor.name for tensor in reader.tensors] == list(wanted)
    for tensor in reader.tensors:
        assert tuple(int(one) for one in tensor.shape) == wanted[tensor.name].dimensions
        assert tensor.n_bytes == wanted[tensor.name].size_bytes
    experts = next(tensor for tensor in reader.tensors if tensor.name == "blk.0.ffn_up_exps.weight")
    weights = gguf.quants.dequantize(experts.data, experts.tensor_type)
    # Without a common direction: the mean is far below the spread.
    assert abs(weights.mean()) < 0.02 * weights.std()
    assert 0.002 < weights.std() < 0.006
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    assert len(set(tokens)) == 288


def test_embeddings_of_one_topic_are_alike_and_still_differ(made):
    reader = gguf.GGUFReader(made)
    table = next(tensor.data for tensor in reader.tensors if tensor.name == "token_embd.weight")
    rows = table / np.linalg.norm(table, axis=1, keepdims=True)
    a, b, other = rows[ord("!")], rows[ord("#")], rows[ord("~")]
    assert 0.5 < a @ b < 0.99
    assert abs(a @ other) < 0.5


def test_the_seed_decides_every_byte(tmp_path, made):
    for seed, same in ((1, True), (2, False)):
        path = tmp_path / f"{seed}.gguf"
        write_model(str(path), SHAPE, seed, nothing)
        assert (path.read_bytes() == Path(made).read_bytes()) is same


def test_progress_ends_at_the_size_of_the_file(tmp_path):
    seen = []
    size = write_model(str(tmp_path / "m.gguf"), SHAPE, 1, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (size, size)
    assert size == os.path.getsize(tmp_path / "m.gguf")
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert size - data_bytes(SHAPE) < 16384


def test_without_room_nothing_is_written(tmp_path, monkeypatch):
    class Full:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    with pytest.raises(WriteError, match=r"needs \d+ bytes and .* has 40960 bytes free"):
        write_model(str(tmp_path / "m.gguf"), SHAPE, 1, nothing)
    assert os.listdir(tmp_path) == []


def test_a_failure_in_the_middle_leaves_the_old_file_and_no_part(tmp_path, monkeypatch):
    old = tmp_path / "m.gguf"
    old.write_bytes(b"old")
    calls = []

    def write(descriptor, data):
        calls.append(len(data))
        if len(calls) == 5:
            raise OSError(28, "No space left on device")
        return len(data)

    monkeypatch.setattr(model_file.os, "write", write)
    with pytest.raises(WriteError, match="No space left"):
        write_model(str(old), SHAPE, 1, nothing)
    assert old.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.gguf"]


def test_a_bad_shape_and_a_missing_directory_are_said(tmp_path):
    with pytest.raises(ShapeError):
        write_model(str(tmp_path / "m.gguf"), ModelShape(layers=1, experts=1, experts_used=2), 1, nothing)
    with pytest.raises(WriteError, match="No such file"):
        write_model(str(tmp_path / "none" / "m.gguf"), SHAPE, 1, nothing)


def test_no_quantized_weight_is_minus_eight(made):
    reader = gguf.GGUFReader(made)
    experts = next(tensor for tensor in reader.tensors if tensor.name == "blk.1.ffn_down_exps.weight")
    raw = np.asarray(experts.data).reshape(-1, 18)
    nibbles = raw[:, 2:]
    assert (nibbles & 15).min() == 1
    assert (nibbles >> 4).min() == 1
    assert {struct.unpack("<e", bytes(block[:2]))[0] for block in raw} == {np.float16(0.02 / 24)}
