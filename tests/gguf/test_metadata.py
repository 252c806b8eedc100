from __future__ import annotations

import pytest

from moetuned.gguf.header import GgufError, Value
from moetuned.gguf.metadata import architecture, block_count, integer, layer_integers, trunk_count


@pytest.mark.parametrize(
    ("value", "expected"), [(7, 7), (0, 0), (-1, None), (True, None), (7.0, None), ("7", None), ((7,), None)]
)
def test_integer(value: Value, expected: int | None):
    assert integer({"key": value}, "key") == expected


def test_layer_integers():
    assert layer_integers({}, "key", 3) is None
    assert layer_integers({"key": 4}, "key", 3) == (4, 4, 4)
    assert layer_integers({"key": (1, 2, 3, 4)}, "key", 3) == (1, 2, 3)
    assert layer_integers({"key": (True, False)}, "key", 2) == (1, 0)
    assert layer_integers({"key": -4}, "key", 3) is None
    assert layer_integers({"key": "text"}, "key", 3) is None
    with pytest.raises(GgufError, match="2 values for 3 layers"):
        layer_integers({"key": (1, 2)}, "key", 3)
    with pytest.raises(GgufError, match="something else than counts"):
        layer_integers({"key": (1, -2)}, "key", 2)
    with pytest.raises(GgufError, match="something else than counts"):
        layer_integers({"key": (1, 0.5)}, "key", 2)


def test_blocks():
    metadata: dict[str, Value] = {"general.architecture": "m", "m.block_count": 47, "m.nextn_predict_layers": 1}
    assert architecture(metadata) == "m"
    assert (block_count(metadata), trunk_count(metadata)) == (47, 46)


def test_no_architecture():
    for wrong in ({}, {"general.architecture": ""}, {"general.architecture": 3}):
        with pytest.raises(GgufError, match=r"general\.architecture"):
            architecture(wrong)
