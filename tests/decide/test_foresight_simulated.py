"""What relief makes of growths that end and such that do not: see `foresight_simulation`, which prints the table."""

from __future__ import annotations

import pytest
from foresight_simulation import (
    CURVES,
    GIB,
    LIMIT,
    MINIMUM,
    NEAR,
    PER_TOKEN,
    PREFERRED,
    SETTINGS,
    TARGET,
    foreseeing,
    lasting,
    many,
    simulate,
    step_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.decide import foresight


def test_a_growth_that_stops_soon_is_not_taken_for_a_long_one() -> None:
    with foreseeing("30 s of all"):
        before = CURVES["hog 200 MB/s for 5 s"]()
    now = CURVES["hog 200 MB/s for 5 s"]()
    assert (before.restarts, now.restarts, now.kills, now.failed_loads) == (1, 1, 0, 0)
    assert before.context < PREFERRED // 4
    assert now.context > PREFERRED * 2 // 3


def test_a_growth_that_ends_before_memory_is_near_costs_nothing() -> None:
    assert CURVES["hog 20 MB/s for 10 s"]().restarts == 0


@pytest.mark.parametrize(
    "name",
    [
        "hog 20 MB/s for 60 s",
        "hog 20 MB/s for 180 s",
        "hog 200 MB/s for 10 s",
        "hog 2 MB/s for ever",
        "leak 5 MB/s",
        "leak 5 MB/s, hog 10 MB/s for 60 s",
        "prompt cache 1 GiB, 30 MB/s",
        "step 600 MiB",
        "step 1.5 GiB",
    ],
)
def test_nothing_is_killed_where_relief_can_help(name: str) -> None:
    found = CURVES[name]()
    assert (found.kills, found.failed_loads) == (0, 0)
    assert found.restarts >= 1
    assert found.least >= MINIMUM


def test_what_its_own_process_gives_back_is_not_cut_off_the_context() -> None:
    with foreseeing("30 s of all"):
        before = CURVES["prompt cache 1 GiB, 30 MB/s"]()
    assert CURVES["prompt cache 1 GiB, 30 MB/s"]().context > before.context


def test_twice_is_the_balance() -> None:
    found = {}
    for name in ("nothing", "what it lasted", "twice what it lasted", "30 s of all"):
        with foreseeing(name):
            found[name] = many(120)
    trouble = {name: kills + failed for name, (_, kills, failed, _) in found.items()}
    assert trouble["twice what it lasted"] < trouble["what it lasted"] < trouble["nothing"]
    assert found["twice what it lasted"][3] > 1.05 * found["30 s of all"][3]
    assert found["twice what it lasted"][0] <= min(found["30 s of all"][0], found["nothing"][0])


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(1e6, 500e6),
    seconds=st.none() | st.integers(1, 300),
    own=st.floats(0, 50e6),
    leaks=st.booleans(),
    jump=st.integers(0, 2 * GIB),
    load=st.integers(2, 200),
    headroom=st.floats(1.0, 3.0),
    cache=st.sampled_from([0, 512, 2048]),
)
def test_never_below_the_minimum_and_never_more_than_may_be_needed(
    rate: float, seconds: int | None, own: float, leaks: bool, jump: int, load: int, headroom: float, cache: int
) -> None:
    def others(at: int) -> float:
        return lasting(rate, seconds)(at) + step_of(jump, 40)(at)

    found = simulate(
        others, lasting(own, None), leaks=leaks, start_headroom=int(headroom * NEAR), load_seconds=load, cache_mib=cache, seconds=500
    )  # fmt: skip
    assert found.least >= MINIMUM
    assert found.restarts <= SETTINGS.at_most
    # Everything that grows at its fastest until the next restart, and all that a jump may look like within three looks.
    unhelped = foresight.unhelped_seconds(float(load), SETTINGS.cool_down_seconds)
    worst = TARGET + (rate + own + jump / 3) * unhelped + jump + rate * 3
    assert found.most_cut_bytes <= min(worst, LIMIT) + 256 * PER_TOKEN
