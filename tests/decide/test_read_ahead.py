"""The read-ahead for a model: from its slices alone, and from a measured curve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.read_ahead import (
    CLEARLY,
    HIGHEST_KIB,
    LOWEST_KIB,
    TIE,
    Expected,
    Point,
    amplification,
    best,
    computed,
    expected,
    is_noisy,
    noise_ratio,
    typical_slice_bytes,
    window_bytes,
)
from moetuned.gguf.experts import ExpertMap, ExpertTensor

KIB = 1 << 10
MIB = 1 << 20


@pytest.mark.parametrize(
    ("slice_bytes", "kib", "nvme_kib"),
    [
        (4 * KIB, 64, 64), (108 * KIB, 64, 64), (432 * KIB, 64, 128), (2304 * KIB, 128, 256), (8 * MIB, 256, 512),
        (128 * MIB, 1024, 1024), (1 << 40, 1024, 1024),
    ],
)  # fmt: skip
def test_the_computed_value(slice_bytes: int, kib: int, nvme_kib: int) -> None:
    assert computed(slice_bytes, rotational=False).kib == kib
    assert computed(slice_bytes, rotational=False, nvme=True).kib == nvme_kib


@given(st.integers(1, 1 << 50), st.sampled_from([None, False]))
def test_it_is_a_power_of_two_within_bounds(slice_bytes: int, rotational: bool | None) -> None:
    kib = computed(slice_bytes, rotational).kib
    assert kib is not None
    assert LOWEST_KIB <= kib <= HIGHEST_KIB
    assert kib & (kib - 1) == 0


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40))
def test_larger_slices_never_get_a_smaller_one(slice_bytes: int, more: int) -> None:
    small, large = computed(slice_bytes, None).kib, computed(slice_bytes + more, None).kib
    assert small is not None
    assert large is not None
    assert small <= large


def test_the_reason_is_a_sentence_with_the_slice() -> None:
    assert computed(432 * KIB, None, nvme=True).because == (
        "slices of 432 KiB are met all over the file: a fault reads 256 KiB around it, about 1.6 bytes for each that is needed"
    )


@pytest.mark.parametrize(
    ("slice_bytes", "rotational", "unknown", "says"),
    [
        (None, False, "x.gguf: cannot be opened", "x.gguf: cannot be opened"),
        (None, False, None, "no experts"),
        (0, False, None, "no experts"),
        (432 * KIB, True, None, "the disk turns"),
    ],
)
def test_left_alone_with_the_reason(
    slice_bytes: int | None, rotational: bool | None, unknown: str | None, says: str
) -> None:
    choice = computed(slice_bytes, rotational, unknown)
    assert choice.kib is None
    assert says in choice.because


def test_the_window_is_twice_the_setting() -> None:
    assert window_bytes(128) == 256 * KIB
    assert amplification(256 * KIB, 128) == 2.0


def tensor(slice_bytes: int, count: int = 8) -> ExpertTensor:
    return ExpertTensor("blk.0.ffn_up_exps.weight", 0, 0, 0, slice_bytes, count)


@pytest.mark.parametrize(
    ("slices", "typical"),
    [((), None), ((442368,), 442368), ((11520, 11520, 4 * MIB, 4 * MIB, 4 * MIB), 4 * MIB), ((MIB, MIB, 3 * MIB), 3 * MIB),
     ((2 * MIB, 2 * MIB, 3 * MIB), 2 * MIB)],
)  # fmt: skip
def test_the_typical_slice_is_the_one_most_bytes_are_in(slices: tuple[int, ...], typical: int | None) -> None:
    """Biases of experts are tensors too, and must not decide how the weights are read."""
    assert typical_slice_bytes(ExpertMap(1, 8, (2,), tuple(map(tensor, slices)), (), (0,))) == typical


CURVE = (
    Point(16, 100e6, 1.1, 50), Point(64, 200e6, 1.3, 50), Point(128, 210e6, 1.6, 50), Point(8192, 10e6, 39.0, 50),
)  # fmt: skip


def test_expected_speeds_are_shares_of_the_fastest() -> None:
    shares = [each.speed_ratio for each in expected(CURVE, 0.0)]
    assert shares == pytest.approx([100 / 210, 200 / 210, 1.0, 10 / 210])


def test_what_is_read_in_vain_takes_cache() -> None:
    small, *_, large = (each.speed_ratio for each in expected(CURVE, 0.5))
    assert large / small < 10 / 100


def test_a_tie_goes_to_what_reads_least() -> None:
    chosen = best(expected(CURVE, 0.5))
    assert chosen is not None
    assert chosen.kib == 64


def test_without_points_there_is_no_best() -> None:
    assert (expected((), 0.5), best(())) == ((), None)


points = st.builds(
    Point, st.integers(4, 8192), st.floats(0, 1e10), st.none() | st.floats(0.5, 1e3), st.integers(1, 1000)
)


@given(st.lists(points, min_size=1, max_size=16), st.floats(0, 1))
def test_the_best_is_never_much_slower_than_the_fastest(found: list[Point], cached: float) -> None:
    curve = expected(found, cached)
    chosen = best(curve)
    assert chosen is not None
    assert max(each.speed_ratio for each in curve) == 1.0
    least = 1.0 - TIE if chosen.kib < LOWEST_KIB else (1.0 - TIE) * (1.0 - CLEARLY)
    assert Expected(chosen, max(each.speed_ratio for each in curve if each.point == chosen)).speed_ratio >= least - 1e-9


def test_where_all_fits_nothing_read_in_vain_costs_an_expert() -> None:
    found = (
        Point(32, 175e6, 1.1, 50),
        Point(64, 260e6, 1.4, 50),
        Point(128, 376e6, 1.9, 50),
        Point(256, 330e6, 2.8, 50),
    )
    chosen = best(expected(found, 1.0))
    assert chosen is not None
    assert chosen.kib == 128


@pytest.mark.parametrize(("small", "kib"), [(230e6, 64), (280e6, 32)])
def test_below_the_least_usual_value_only_where_it_is_clearly_faster(small: float, kib: int) -> None:
    chosen = best(expected((Point(32, small, 1.0, 50), Point(64, 200e6, 1.0, 50), Point(128, 150e6, 1.0, 50)), 0.0))
    assert chosen is not None
    assert chosen.kib == kib


def curve(**rounds: tuple[float, ...]) -> tuple[Expected, ...]:
    """Rounds in MB/s by value, `k64=(100, 110, 90)`."""
    found = [
        Point(int(name[1:]), sorted(speeds)[len(speeds) // 2] * 1e6, 1.0, 50, tuple(speed * 1e6 for speed in speeds))
        for name, speeds in rounds.items()
    ]
    return expected(found, 0.0)


def test_rounds_with_another_best_each_are_noise() -> None:
    assert is_noisy(curve(k16=(40, 70, 45), k32=(200, 100, 110), k64=(100, 210, 105), k128=(110, 100, 205)))
    assert is_noisy(curve(k32=(200, 100, 150), k64=(130, 210, 95), k128=(90, 160, 205), k256=(160, 80, 120)))


def test_rounds_that_agree_are_none() -> None:
    steady = curve(k16=(100, 104, 97), k64=(200, 195, 204), k128=(210, 214, 203), k8192=(10, 11, 10))
    assert noise_ratio([each.point for each in steady]) < 0.1
    assert not is_noisy(steady)
    slowed = curve(k16=(100, 52, 97), k64=(200, 98, 204), k128=(210, 107, 203), k8192=(10, 5.5, 10))
    assert not is_noisy(slowed), "a whole round was slow, each value alike"
    spell = curve(k16=(100, 104, 97), k64=(200, 20, 204), k128=(210, 214, 203), k8192=(10, 11, 10))
    assert not is_noisy(spell), "the median of the rounds is not touched by one spell"


def test_differences_larger_than_the_noise_are_told() -> None:
    assert not is_noisy(curve(k64=(10, 14, 12), k128=(100, 140, 90), k256=(9, 12, 13)))


def test_that_a_neighbour_may_be_the_fastest_is_no_noise() -> None:
    assert not is_noisy(curve(k16=(40, 70, 45), k64=(100, 210, 140), k128=(150, 130, 205), k512=(20, 30, 25)))


def test_of_one_round_or_one_value_nothing_is_known() -> None:
    assert noise_ratio([Point(64, 1e6, None, 1, (1e6,)), Point(128, 1e6, None, 1, (2e6,))]) == 0.0
    assert noise_ratio([Point(64, 1e6, None, 1, (1e6, 9e6))]) == noise_ratio([]) == 0.0
