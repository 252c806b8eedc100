"""The `gguf` package's reader as the judge of ours: names, types, shapes, offsets, sizes and every scalar must be the same."""

from __future__ import annotations

import math
from pathlib import Path

import gguf

from moetuned.gguf.header import Header


def assert_equal_to_oracle(header: Header, path: Path) -> None:
    """Compare what our reader made of the file at `path` with what gguf.GGUFReader makes of it."""
    reader = gguf.GGUFReader(path)
    assert header.data_offset == reader.data_offset
    assert header.alignment == reader.alignment
    theirs = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert header.metadata.keys() | header.skipped.keys() == theirs.keys()
    for key, value in header.metadata.items():
        expected = theirs[key].contents()
        expected = tuple(expected) if isinstance(expected, list) else expected
        assert _same(value, expected), f"{key}: {value!r} and {expected!r}"
    for key, array in header.skipped.items():
        assert array.count == len(theirs[key].data), key
        assert array.type_code == int(theirs[key].types[1]), key
    assert [(t.name, t.type_code, t.shape, t.offset, t.size_bytes) for t in header.tensors] == [
        (t.name, int(t.tensor_type), tuple(int(n) for n in t.shape), int(t.data_offset), int(t.n_bytes))
        for t in reader.tensors
    ]


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(_same(one, other) for one, other in zip(ours, theirs, strict=True))
    if isinstance(ours, float) and math.isnan(ours):
        return isinstance(theirs, float) and math.isnan(theirs)
    return ours == theirs
