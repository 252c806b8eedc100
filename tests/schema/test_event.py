"""Names of events: they are what a config, a hook's environment and a trace's truth are written with."""

from __future__ import annotations

import re

import pytest

from moetuned.schema.event import EventName


def test_the_names_are_the_published_ones() -> None:
    assert {name.value for name in EventName} == {
        "thrash_begin",
        "thrash_end",
        "memory_near_limit",
        "memory_recovered",
        "backend_down",
        "backend_recovered",
        "backend_restarting",
        "backend_restarted",
        "relief_exhausted",
        "cache_evicted",
        "tuning_drifted",
        "device_unsuitable",
    }


@pytest.mark.parametrize("name", EventName)
def test_a_name_is_unique_and_can_stand_in_an_environment_variable(name: EventName) -> None:
    assert [other for other in EventName.__members__.values() if other.value == name.value] == [name]
    assert EventName.__members__[name.value.upper()] is name, "no two names for one event"
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
