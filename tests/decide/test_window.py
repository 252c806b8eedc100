from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from signal_cases import facts_of, sample_of

from moetuned.decide.counters import process_read_bytes
from moetuned.decide.signals import complete, derive, of_window, on_demand, signal_functions
from moetuned.decide.window import (
    MAX_MOMENTS,
    Window,
    increase,
    last_seconds,
    latest,
    next_window,
    once,
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


@st.composite
def _walks(draw: st.DrawFn) -> list[Sample]:
    """Seconds of one backend that now and then is away, starts again, moves, or is not looked at for a while."""
    samples, at, pid, directory = [], 0.0, 1, "/cg/a"
    for _ in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from([0.25, 1.0, 1.0, 1.0, 4.0, 5.0, 5.1, 20.0]))
        pid += draw(st.sampled_from([0, 0, 0, 0, 0, 1]))
        directory = draw(st.sampled_from([directory] * 5 + ["/cg/b"]))
        made = sample_of(
            {
                "t": at,
                "process": draw(st.sampled_from([{"pid": pid, "read_bytes": int(at * 100)}] * 6 + [None])),
                "cgroup": {"file_bytes": draw(st.none() | st.integers(0, 100)), "shared_bytes": 3},
                "residency": draw(st.sampled_from([None, None, {"resident_bytes": int(at)}])),
                "slots": [{"processing": draw(st.booleans()), "task_id": 1, "decoded_tokens": int(at)}],
            }
        )
        own = (
            ()
            if draw(st.integers(0, 9)) == 0
            else (msgspec.structs.replace(made.backends[0], cgroup_directory=directory),)
        )
        samples.append(msgspec.structs.replace(made, backends=own))
    return samples


@given(_walks(), st.sampled_from([3.0, 30.0, 60.0]))
def test_a_window_that_grows_is_the_window_of_all_its_samples(samples: list[Sample], keep: float) -> None:
    facts, grown = facts_of({}), None
    for count, sample in enumerate(samples, 1):
        kept = [one for one in samples[:count] if sample.at_seconds - one.at_seconds <= keep]
        whole = window_of(kept, "one", facts)
        grown = next_window(grown, sample, "one", facts, keep)
        assert (None if grown is None else grown.moments) == (None if whole is None else whole.moments)
        whole_signals = derive(kept, "one", facts)
        assert of_window(grown, "one", sample.at_seconds) == whole_signals
        asked = on_demand(grown, "one", sample.at_seconds)
        assert asked.get("refault_ratio") == whole_signals.get("refault_ratio")
        assert complete(asked) == whole_signals


def test_a_window_that_grows_is_bounded_by_count() -> None:
    grown = None
    for position in range(3 * MAX_MOMENTS):
        grown = next_window(grown, sample_of({"t": position / 10}), "one", facts_of({}), 60.0)
    assert grown is not None
    assert len(grown.moments) == MAX_MOMENTS


def test_what_several_ask_for_is_worked_out_once() -> None:
    made, asked = window((0, 0), (1, 1)), []

    def slow(of: Window) -> int:
        asked.append(of)
        return len(of.moments)

    assert [once(made, slow), once(made, slow)] == [2, 2]
    assert len(asked) == 1
    assert once(window((0, 0)), slow) == 1


def test_a_signal_that_nobody_asks_for_is_not_worked_out() -> None:
    made = window((0, 0), (1, 1))
    found = on_demand(made, "one", 1.0)
    assert found.get("process_read_bytes_per_second") == 1.0
    assert len(made.known) == 1
    assert "cpu_ratio" in found.values
    assert len(found.values) == len(signal_functions())
    with pytest.raises(KeyError):
        found.get("no_such_signal")
