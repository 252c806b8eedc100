from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.swap_values import highest_swappiness, page_cluster, swappiness
from moetuned.schema.config import Profile
from moetuned.schema.swap import SwapHome, SwapPlace

PLAIN, ZRAM = Profile.MOE_OFFLOAD.value, Profile.MOE_OFFLOAD_ZRAM.value


def home(place: SwapPlace) -> SwapHome:
    return SwapHome(place, f"it is {place.value}")


@pytest.mark.parametrize(
    ("place", "value"), [(SwapPlace.ROTATIONAL, "10"), (SwapPlace.SSD, "60"), (SwapPlace.ZRAM, "133")]
)
def test_swappiness_by_place(place: SwapPlace, value: str) -> None:
    found = swappiness(home(place), PLAIN)
    assert (found.values[PLAIN], found.skip) == (value, None)
    assert found.because.startswith(f"it is {place.value}; ")


@pytest.mark.parametrize("place", [SwapPlace.NONE, SwapPlace.MIXED, SwapPlace.UNKNOWN])
def test_no_swappiness_without_a_known_place(place: SwapPlace) -> None:
    found = swappiness(home(place), PLAIN)
    assert found.skip is not None
    assert found.skip.startswith(f"it is {place.value}, ")


@given(st.sampled_from(SwapPlace), st.sampled_from([100, 200]))
def test_a_profile_that_wishes_for_zram_does_not_make_it_so(place: SwapPlace, highest: int) -> None:
    for choose in (
        lambda profile: swappiness(home(place), profile, highest),
        lambda profile: page_cluster(home(place), profile),
    ):
        assert choose(ZRAM) == choose(PLAIN)


@pytest.mark.parametrize("first", [True, False])
def test_with_both_kinds_it_counts_which_is_filled_first(first: bool) -> None:
    both = msgspec.structs.replace(home(SwapPlace.MIXED), compressed_first=first)
    assert (swappiness(both, ZRAM).skip is None, page_cluster(both, ZRAM).skip is None) == (first, first)
    assert (swappiness(both, ZRAM).values[ZRAM] == "133") is first
    assert swappiness(both, PLAIN).skip is not None, "the profile did not choose zram"


@given(st.sampled_from(SwapPlace), st.sampled_from([PLAIN, ZRAM, None]), st.sampled_from([100, 200]))
def test_always_a_reason_and_never_more_than_the_kernel_takes(place: SwapPlace, profile: str, highest: int) -> None:
    for found in (swappiness(home(place), profile, highest), page_cluster(home(place), profile)):
        assert (found.skip is None) == (found.because != "")
        assert set(found.values) == {PLAIN, ZRAM}
        assert all(0 <= int(value) <= highest for value in found.values.values())


@pytest.mark.parametrize("place", SwapPlace)
def test_page_cluster_only_where_all_is_zram(place: SwapPlace) -> None:
    found = page_cluster(home(place), PLAIN)
    assert found.values[PLAIN] == "0"
    assert (found.skip is None) is (place is SwapPlace.ZRAM)


@pytest.mark.parametrize(
    ("release", "highest"),
    [("5.4.0-150-generic", 100), ("5.7", 100), ("4.19.0-27-amd64", 100), ("5.8.0", 200), ("5.15.0", 200),
     ("6.18.44-fc", 200), ("", 200), ("x", 200)],
)  # fmt: skip
def test_highest_by_release(release: str, highest: int) -> None:
    assert highest_swappiness(release) == highest
