"""Places of settings as the undo journal keeps them: another version must read what this one wrote."""

from __future__ import annotations

import msgspec
import pytest

from moetuned.schema.tunable import Codec, Place

PLACES = [
    (Place("/proc/sys/vm/x", Codec.INTEGER), {"path": "/proc/sys/vm/x", "codec": "integer"}),
    (
        Place("/proc/sys/vm/a", Codec.CHOICE, "/proc/sys/vm/b", taken_at_open=True),
        {"path": "/proc/sys/vm/a", "codec": "choice", "twin_path": "/proc/sys/vm/b", "taken_at_open": True},
    ),
]


@pytest.mark.parametrize(("place", "stored"), PLACES, ids=["short", "whole"])
def test_a_place_on_disk(place: Place, stored: dict[str, object]) -> None:
    assert msgspec.to_builtins(place) == stored
    assert msgspec.convert(stored, Place) == place
