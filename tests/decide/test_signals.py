from __future__ import annotations

import importlib
import inspect
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from signal_cases import Case, cases_of, facts_of, sample_of

from moetuned.decide import signals
from moetuned.decide.facts import BackendFacts
from moetuned.decide.signals import derive, signal_functions, signal_units
from moetuned.schema.sample import (
    BackendHttp,
    BackendSample,
    CgroupMemory,
    MachineSample,
    MemInfo,
    ProcessCounters,
    Residency,
    Sample,
    Slot,
    VmStat,
)

CASES = pathlib.Path(__file__).parent / "signals"
NAMES = sorted(signal_functions())


def all_cases() -> list[object]:
    return [
        pytest.param(path.stem, case, id=f"{path.stem}: {case.about}")
        for path in sorted(CASES.glob("*.yaml"))
        for case in cases_of(path.read_text())
    ]


@pytest.mark.parametrize(("name", "case"), all_cases())
def test_case(name: str, case: Case) -> None:
    found = derive([sample_of(moment) for moment in case.moments], "one", facts_of(case.facts))
    wanted = case.expect if isinstance(case.expect, dict) else {name: case.expect}
    for signal, value in wanted.items():
        assert found.get(signal) == (None if value is None else pytest.approx(value)), signal


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_is_documented_has_a_unit_and_cases_known_and_unknown(name: str) -> None:
    module = importlib.import_module(f"{signals.__name__}.{name}")
    assert module.__doc__, f"{name} has no manual entry"
    assert "Source" in module.__doc__, f"{name} does not say where it comes from"
    assert signal_units()[name], f"{name} has no unit"
    assert list(inspect.signature(module.compute).parameters) == ["window"]
    assert module.compute.__doc__
    path = CASES / f"{name}.yaml"
    assert path.exists(), f"write tests/decide/signals/{name}.yaml"
    values = [case.expect for case in cases_of(path.read_text()) if not isinstance(case.expect, dict)]
    assert any(value is None for value in values), f"{name} has no case in which it is unknown"
    assert any(value is not None for value in values), f"{name} has no case in which it is known"


def test_no_case_file_without_a_signal() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == set(NAMES)


def test_an_unknown_backend_has_unknown_signals() -> None:
    found = derive([sample_of({"t": 1})], "another", facts_of({}))
    assert set(found.values) == set(NAMES)
    assert set(found.values.values()) == {None}
    assert found.dt_seconds is None


def test_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="no sample"):
        derive([], "one", BackendFacts())


def test_a_name_that_is_no_signal_is_an_error() -> None:
    with pytest.raises(KeyError):
        derive([sample_of({"t": 1})], "one", BackendFacts()).get("no_such_signal")


RATES = [name for name in NAMES if name.endswith("_per_second")]


@pytest.mark.parametrize(
    "second", [{"t": 7.0}, {"t": 1.0, "process": {"pid": 2}}, {"t": 1.0, "process": {"start_ticks": 9}}]
)
def test_no_rate_over_a_gap_or_over_another_process(second: dict[str, object]) -> None:
    first = {"t": 0.0, "process": {"major_faults": 1, "read_bytes": 1, "rss_anon_bytes": 1, "cpu_ticks": 1}}
    process = {"major_faults": 2, "read_bytes": 2, "rss_anon_bytes": 2, "cpu_ticks": 2}
    own = second.get("process", {})
    assert isinstance(own, dict)
    found = derive([sample_of(first), sample_of({**second, "process": {**process, **own}})], "one", facts_of({}))
    assert found.dt_seconds is None
    assert {found.get(name) for name in RATES} == {None}


COUNT = st.none() | st.integers(0, 1 << 62)
SIZE = st.none() | st.integers(0, 1 << 50)
SAMPLES = st.builds(
    Sample,
    at_seconds=st.floats(0, 20),
    wall_seconds=st.just(0.0),
    machine=st.builds(
        MachineSample,
        meminfo=st.none()
        | st.builds(MemInfo, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE),
        vmstat=st.none() | st.builds(VmStat, COUNT, COUNT, COUNT, COUNT),
    ),
    backends=st.tuples(
        st.builds(
            BackendSample,
            name=st.just("one"),
            process=st.none()
            | st.builds(
                ProcessCounters,
                pid=st.integers(1, 2),
                start_ticks=st.just(1),
                major_faults=COUNT,
                cpu_ticks=COUNT,
                rss_anon_bytes=SIZE,
                rss_file_bytes=SIZE,
                swap_bytes=SIZE,
                read_bytes=COUNT,
            ),
            cgroup=st.none()
            | st.builds(
                CgroupMemory,
                version=st.just(2),
                current_bytes=SIZE,
                limit_bytes=SIZE,
                anonymous_bytes=SIZE,
                file_bytes=SIZE,
                refault_file_pages=COUNT,
                reclaimable_file_bytes=SIZE,
            ),
            http=st.none()
            | st.builds(
                BackendHttp,
                health=st.sampled_from(["ok", "loading", None]),
                slots=st.none()
                | st.tuples(st.builds(Slot, slot_id=st.just(0), processing=st.booleans(), decoded_tokens=COUNT)),
                decode_calls_total=st.none() | st.floats(0, 1e9),
                requests_processing=st.none() | st.floats(0, 1e9),
            ),
            residency=st.none() | st.builds(Residency, st.integers(0, 1 << 50), SIZE, SIZE),
        )
    ),
)


@given(st.lists(SAMPLES, min_size=1, max_size=6), st.booleans())
def test_any_window_gives_a_number_or_none(window: list[Sample], ordered: bool) -> None:
    if ordered:
        window.sort(key=lambda sample: sample.at_seconds)
    found = derive(window, "one", facts_of({}))
    for name, value in found.values.items():
        assert value is None or value == value, name
    for name in ("refault_ratio", "resident_ratio", "active_ratio", "stall_memory_some_ratio"):
        value = found.get(name)
        assert value is None or 0 <= value <= 1
