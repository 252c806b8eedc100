from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from fakes.gguf_bytes import F32, Q4_0, TensorSpec, Typed, gguf_bytes, moe_metadata, moe_tensors, text
from fakes.gguf_oracle import assert_equal_to_oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.gguf.header import (
    MAX_HEADER_BYTES,
    MAX_KEPT_ELEMENTS,
    GgufError,
    Header,
    NeedMore,
    header_steps,
    parse_header,
)


def parsed(raw: bytes) -> Header:
    header = parse_header(raw, len(raw))
    assert isinstance(header, Header)
    return header


def refused(raw: bytes) -> str:
    with pytest.raises(GgufError) as caught:
        parse_header(raw, len(raw))
    return str(caught.value)


def write_with_gguf(path: Path, architecture: str, order: gguf.GGUFEndian) -> None:
    writer = gguf.GGUFWriter(path, architecture, endianess=order)
    writer.add_block_count(3)
    writer.add_head_count_kv([2, 0, 2])
    writer.add_rope_freq_base(1e6)
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -3)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_int32("test.i32", -5)
    writer.add_uint64("test.u64", 2**63 + 1)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.yes", True)
    writer.add_string("test.text", "Grüße, 世界")
    writer.add_array("test.flags", [True, False, True])
    writer.add_token_list([f"token {i}" for i in range(3000)])
    writer.add_token_scores([float(i) for i in range(3000)])
    writer.add_tensor("token_embd.weight", np.ones((5, 64), dtype=np.float32))
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(7, dtype=np.float16))
    writer.add_tensor(
        "blk.0.ffn_up_exps.weight",
        np.zeros((4, 8, 2 * 18), dtype=np.uint8),
        raw_dtype=gguf.GGMLQuantizationType.Q4_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("order", list(gguf.GGUFEndian))
@pytest.mark.parametrize("architecture", ["qwen3moe", "gpt-oss", "deepseek2"])
def test_equals_the_gguf_package(tmp_path: Path, architecture: str, order: gguf.GGUFEndian):
    path = tmp_path / "model.gguf"
    write_with_gguf(path, architecture, order)
    header = parsed(path.read_bytes())
    assert header.architecture == architecture
    assert header.big_endian == (order is gguf.GGUFEndian.BIG)
    assert_equal_to_oracle(header, path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_versions_and_byte_orders(version: int, order: str):
    header = parsed(gguf_bytes(moe_metadata(), moe_tensors(), order=order, version=version))
    assert (header.version, header.big_endian) == (version, order == ">")
    assert header.metadata["qwen3moe.expert_count"] == 4
    assert len(header.tensors) == 12


def test_short_number_arrays_are_kept_and_long_ones_counted():
    header = parsed(
        gguf_bytes({"short": [1] * MAX_KEPT_ELEMENTS, "long": [1] * (MAX_KEPT_ELEMENTS + 1), "names": ["a", "b"]})
    )
    assert header.metadata == {"short": (1,) * MAX_KEPT_ELEMENTS}
    assert {key: array.count for key, array in header.skipped.items()} == {"long": MAX_KEPT_ELEMENTS + 1, "names": 2}


def test_alignment_of_the_file_is_used():
    header = parsed(gguf_bytes({"general.alignment": 256}, [TensorSpec("a", (3,)), TensorSpec("b", (3,))]))
    assert header.alignment == 256
    assert header.data_offset % 256 == 0
    assert [tensor.offset - header.data_offset for tensor in header.tensors] == [0, 256]
    assert header.promised_bytes == header.data_offset + 256 + 12


def test_a_bare_header_is_enough_and_every_shorter_piece_says_need_more():
    raw = gguf_bytes(moe_metadata() | {"names": ["x" * 50] * 9}, moe_tensors(), with_data=False)
    whole = parse_header(raw)
    assert isinstance(whole, Header)
    assert whole.header_bytes == len(raw)
    for length in range(len(raw)):
        need = parse_header(raw[:length])
        assert isinstance(need, NeedMore)
        assert length < need.offset + need.at_least <= len(raw)


def drive(raw: bytes, window: int) -> tuple[Header, int]:
    """Parse through windows of `window` bytes; returns the header and how many bytes were handed over."""
    steps = header_steps(len(raw))
    need, handed = next(steps), 0
    while True:
        piece = raw[need.offset : need.offset + max(need.at_least, window)]
        handed += len(piece)
        try:
            need = steps.send(piece)
        except StopIteration as done:
            return done.value, handed


@pytest.mark.parametrize("window", [1, 7, 24, 100, 1 << 20])
def test_any_window_gives_the_same_header(window: int):
    raw = gguf_bytes(moe_metadata() | {"names": ["x" * n for n in range(60)]}, moe_tensors())
    header, _ = drive(raw, window)
    assert header == parse_header(raw, len(raw))


def test_long_number_arrays_are_jumped_over():
    raw = gguf_bytes({"scores": Typed("f32", [0.5] * 200_000), "after": 7})
    header, handed = drive(raw, 4096)
    assert header.metadata["after"] == 7
    assert handed < 20_000


def test_a_large_vocabulary_is_never_held():
    raw = gguf_bytes({"tokens": ["token"] * 100_000, "after": 7})
    tracemalloc.start()
    header, _ = drive(raw, 1 << 16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert header.skipped["tokens"].count == 100_000
    assert peak < len(raw) // 4


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\0" * 64, "begins with zeros"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"lmgg" + b"\0" * 40, "before GGUF"),
        (b"PK\x03\x04" + b"\0" * 40, "no GGUF file"),
        (b"", "still downloading"),
        (gguf_bytes({}, version=1), "version 1"),
        (gguf_bytes({}, version=4), "version 4"),
        (gguf_bytes({}, key_count=2**63), "metadata keys"),
        (gguf_bytes({}, tensor_count=2**63), "tensors, more than"),
        (gguf_bytes({}, key_count=5), "inside its own header"),
        (gguf_bytes({"a": 1}, tensor_count=5), "inside its own header"),
        (gguf_bytes([("a", 1), ("a", 2)]), "'a' twice"),
        (gguf_bytes([("a", 1), ("a", ["x"])]), "'a' twice"),
        (gguf_bytes([(b"\xff\xfe", 1)]), "not UTF-8"),
        (gguf_bytes({"a": b"\xff"}), "not UTF-8"),
        (gguf_bytes({"general.alignment": 0}), "power of two"),
        (gguf_bytes({"general.alignment": 24}), "power of two"),
        (gguf_bytes({"general.alignment": "32"}), "power of two"),
        (gguf_bytes({"general.alignment": True}), "power of two"),
        (gguf_bytes({}, [TensorSpec("t", (1,)), TensorSpec("t", (1,))]), "'t' twice"),
        (gguf_bytes({}, [TensorSpec("t" * 300, (1,))]), "at most 256"),
        (gguf_bytes({}, [TensorSpec("t", (1, 1, 1, 1, 1))]), "5 dimensions"),
        (gguf_bytes({}, [TensorSpec("t", (2**62, 4))], with_data=False), "impossible shape"),
        (gguf_bytes({}, [TensorSpec("t", (2**63, 0))]), "impossible shape"),
        (gguf_bytes({}, [TensorSpec("t", (1,), offset=8)]), "multiple of the alignment"),
        (gguf_bytes({}, [TensorSpec("t", (1,), offset=2**63)], with_data=False), "impossible offset"),
        (gguf_bytes({}, [TensorSpec("t", (33,), Q4_0)]), "not blocks of 32"),
        (gguf_bytes({}, [TensorSpec("a", (64,)), TensorSpec("b", (64,), offset=32)]), "'a' and 'b' overlap"),
    ],
)
def test_damaged_files_get_one_sentence(raw: bytes, expected: str):
    sentence = refused(raw)
    assert expected in sentence
    assert "\n" not in sentence


def test_the_sentence_for_a_magic_in_the_first_bytes_of_a_tiny_file():
    assert "no GGUF file" in refused(b"hello, this is not a model")


@pytest.mark.parametrize("count", [2**63, 2**64 - 1, 5_000_000])
def test_string_counts_beyond_reason(count: int):
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("tokens") + struct.pack("<IIQ", 9, 8, count) + bytes(1 << 16)
    assert "strings up to 'tokens', more than" in refused(raw)


def test_string_counts_beyond_reason_together():
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    raw += text("a") + struct.pack("<IIQ", 9, 8, 10) + bytes(80) + text("b") + struct.pack("<IIQ", 9, 8, 2 << 20)
    assert f"claims {(2 << 20) + 10} strings up to 'b'" in refused(raw + bytes(64))


@pytest.mark.parametrize("count", [2**63, 2**64 - 1, 2**30])
def test_number_counts_beyond_reason(count: int):
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("scores") + struct.pack("<IIQ", 9, 6, count) + bytes(1 << 16)
    assert f"longer than {MAX_HEADER_BYTES >> 20} MiB" in refused(raw)


def test_strings_longer_than_the_file():
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("tokens") + struct.pack("<IIQ", 9, 8, 3)
    assert "longer than" in refused(raw + struct.pack("<Q", 2**64 - 1))
    assert "inside its own header" in refused(raw + struct.pack("<Q", 2**20))


def test_arrays_of_arrays_and_unknown_types():
    def entry(code: int, element: int | None) -> bytes:
        body = struct.pack("<I", code) + (b"" if element is None else struct.pack("<IQ", element, 1))
        return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("key") + body + bytes(64)

    assert "array of arrays" in refused(entry(9, 9))
    assert "unknown value type 77" in refused(entry(9, 77))
    assert "unknown value type 13" in refused(entry(13, None))


def test_a_text_too_long_to_be_metadata():
    assert "at most 1048576" in refused(gguf_bytes({"a": "x" * (2 << 20)}))
    assert "larger than" in refused(gguf_bytes({f"k{n}": "x" * (1 << 20) for n in range(9)}))


def test_unknown_tensor_types_are_kept_without_a_size():
    header = parsed(gguf_bytes({}, [TensorSpec("a", (32,), 139), TensorSpec("b", (8,), F32, 64)]))
    assert [tensor.size_bytes for tensor in header.tensors] == [None, 32]


def read_all(raw: bytes) -> None:
    """Whatever the bytes are: a header, a wish for more, or a GgufError."""
    for size in (len(raw), None):
        with suppress(GgufError):
            assert isinstance(parse_header(raw, size), Header | NeedMore)


@given(st.binary(max_size=400))
def test_random_bytes(raw: bytes):
    read_all(raw)
    read_all(b"GGUF" + raw)
    read_all(b"GGUF\3\0\0\0" + raw)


GOOD = gguf_bytes(
    moe_metadata() | {"names": ["a", "bc"], "flags": [True, False], "many": [1] * 1100, "f": 0.5}, moe_tensors(1)
)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=9)), max_size=4), st.integers(0, len(GOOD))
)
def test_damaged_headers(patches: list[tuple[int, bytes]], length: int):
    raw = bytearray(GOOD)
    for position, patch in patches:
        raw[position : position + len(patch)] = patch
    read_all(bytes(raw))
    read_all(bytes(raw[:length]))


INTERESTING = st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1])


@settings(max_examples=300)
@given(st.integers(8, 900), INTERESTING)
def test_hostile_numbers_anywhere(position: int, number: int):
    raw = bytearray(GOOD)
    raw[position : position + 8] = struct.pack("<Q", number)
    read_all(bytes(raw))
