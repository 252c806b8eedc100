from __future__ import annotations

import msgspec
import pytest
from signal_cases import facts_of, sample_of

from moetuned.decide.counters import process_read_bytes
from moetuned.decide.window import (
    Window,
    increase,
    last_seconds,
    latest,
    rate,
    stall_ratio,
    tick_rate,
    trend,
    window_of,
)
from moetuned.schema.sample import Sample


def window(*reads: tuple[float, int | None]) -> Window:
    made = window_of([sample_of({"t": at, "process": {"read_bytes": read}}) for at, read in reads], "one", facts_of({}))
    assert made is not None
    return made


def times(made: Window | None) -> list[float]:
    assert made is not None
    return [moment.at_seconds for moment in made.moments]


def test_a_run_without_gaps_oldest_first() -> None:
    made = window((0, 0), (1, 1), (3, 2))
    assert times(made) == [0, 1, 3]
    assert (made.now.at_seconds, made.dt_seconds) == (3, 2)


@pytest.mark.parametrize("process", [{"pid": 2}, {"start_ticks": 5}, None])
def test_a_run_is_of_one_process(process: dict[str, int] | None) -> None:
    samples = [sample_of({"t": 0, "process": process}), sample_of({"t": 1}), sample_of({"t": 2})]
    assert times(window_of(samples, "one", facts_of({}))) == [1, 2]


def test_a_run_is_of_one_cgroup() -> None:
    def moved(sample: Sample) -> Sample:
        own = msgspec.structs.replace(sample.backends[0], cgroup_directory="/sys/fs/cgroup/own")
        return msgspec.structs.replace(sample, backends=(own,))

    samples = [sample_of({"t": 0}), moved(sample_of({"t": 1})), moved(sample_of({"t": 2}))]
    assert times(window_of(samples, "one", facts_of({}))) == [1, 2]


@pytest.mark.parametrize("step", [5.5, 0.0, -1.0])
def test_a_gap_or_a_clock_that_stands_begins_a_new_run(step: float) -> None:
    samples = [sample_of({"t": 10}), sample_of({"t": 10 + step})]
    assert times(window_of(samples, "one", facts_of({}))) == [10 + step]


def test_a_sample_without_the_backend_ends_the_run() -> None:
    assert window_of([sample_of({"t": 0})], "another", facts_of({})) is None


def test_last_seconds_spans_at_least_that_time() -> None:
    made = window((0, 0), (1, 1), (2, 2), (3, 3))
    assert [moment.at_seconds for moment in last_seconds(made, 2.0)] == [1, 2, 3]
    assert [moment.at_seconds for moment in last_seconds(made, 1.5)] == [1, 2, 3]
    assert len(last_seconds(made, 60.0)) == 4


def test_late_ticks_still_count_as_the_time_they_meant() -> None:
    made = window((0.0, 0), (1.004, 1), (2.001, 2))
    assert [moment.at_seconds for moment in last_seconds(made, 1.0)] == [1.004, 2.001]


def test_rates_are_over_measured_time() -> None:
    made = window((0, 0), (1, 10), (3, 50))
    assert tick_rate(made, process_read_bytes) == 20
    assert rate(made.moments, process_read_bytes) == pytest.approx(50 / 3)
    assert increase(made.moments, process_read_bytes) == 50


def test_a_counter_that_went_back_or_is_unknown_has_no_rate_but_a_value_has_a_trend() -> None:
    back = window((0, 50), (1, 10))
    assert tick_rate(back, process_read_bytes) is None
    assert trend(back.moments, process_read_bytes) == -40
    assert tick_rate(window((0, None), (1, 10)), process_read_bytes) is None
    assert trend(window((0, 1), (1, None)).moments, process_read_bytes) is None


def test_latest_is_the_newest_that_is_young_enough() -> None:
    made = window((0, 7), (3, None), (6, None))
    assert latest(made, 10.0, process_read_bytes) == 7
    assert latest(made, 5.0, process_read_bytes) is None


@pytest.mark.parametrize(
    ("first", "second", "share"), [(0, 0, 0.0), (0, 500_000, 0.25), (0, 2_500_000, 1.0), (9, 3, None), (None, 3, None)]
)
def test_a_stalled_share_of_two_seconds(first: int | None, second: int, share: float | None) -> None:
    assert stall_ratio(window((0, first), (2, second)), process_read_bytes) == share
