"""What a kind can do, asked by the name of what a restart may change."""

from __future__ import annotations

import pytest

from moetuned.schema.backend_abilities import LLAMA_SERVER, Abilities, Dialect, Way


@pytest.mark.parametrize("value", ["context", "prompt_cache_mib", "slots", "cache_type"])
def test_how_each_value_is_given(value: str) -> None:
    assert LLAMA_SERVER.ways(value) == (Way.FLAG, Way.VARIABLE)
    assert Abilities(Dialect.KOBOLD).ways(value) == ()


def test_of_what_no_ability_is_noted_no_way_is_known() -> None:
    assert LLAMA_SERVER.ways("checkpoints") == ()
