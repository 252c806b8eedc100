from __future__ import annotations

import msgspec
import pytest
from detector_scenes import FACTS, IDLE, signals_at
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.detector import DetectorSettings, Step, initial, step
from moetuned.decide.detector_hung import Stillness, hung_check
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendHttp, BackendSample, ProcessCounters, Slot
from moetuned.schema.verdict import Phase, Reason

SETTINGS = DetectorSettings()
HOLD = int(SETTINGS.hung_hold_seconds)
STILL = ProcessCounters(7, 1, state="S", major_faults=5, cpu_ticks=100, read_bytes=1000)
BUSY = (Slot(0, processing=True, task_id=1, prompt_tokens=512, prompt_tokens_processed=0, decoded_tokens=0),)


class Run:
    """One backend, a second at a time."""

    def __init__(self) -> None:
        self.state = initial("one")
        self.at = 0.0
        self.events: list[EventName] = []
        self.messages: list[str] = []
        self.last: Step | None = None

    def go(
        self,
        seconds: int,
        slots: tuple[Slot, ...] | None = BUSY,
        health: str | None = "ok",
        process: ProcessCounters = STILL,
        signals: dict[str, float | None] | None = None,
    ) -> Step:
        for _ in range(seconds):
            self.at += 1.0
            http = None if health is None else BackendHttp(health=health, slots=slots)
            sample = BackendSample("one", process=process, http=http)
            self.last = step(self.state, signals_at(self.at, signals or {}), sample, FACTS, SETTINGS)
            self.state = self.last.state
            self.events += [begun.name for begun in self.last.begun]
            self.messages += [begun.message for begun in self.last.begun]
        assert self.last is not None
        return self.last


def hung(stepped: Step) -> list[Reason]:
    return [reason for reason in stepped.verdict.reasons if reason.signal == "hung"]


def test_nothing_moves_for_the_hold_time_is_told_once_and_keeps_its_phase() -> None:
    run = Run()
    assert not hung(run.go(HOLD))
    stepped = run.go(2)
    (reason,) = hung(stepped)
    assert stepped.verdict.phase is Phase.PREFILL
    assert stepped.verdict.reasons[0] is reason
    assert "limit 1 min" in reason.text
    assert run.events == [EventName.BACKEND_DOWN]
    assert run.messages[0].startswith("it hangs: a request is waiting")
    run.go(100)
    assert run.events == [EventName.BACKEND_DOWN]


def test_when_it_moves_again_it_has_recovered() -> None:
    run = Run()
    run.go(HOLD + 5)
    run.go(1, process=msgspec.structs.replace(STILL, cpu_ticks=300))
    assert run.events == [EventName.BACKEND_DOWN, EventName.BACKEND_RECOVERED]
    assert run.last is not None
    assert not hung(run.last)


@pytest.mark.parametrize("health", ["busy", "unreachable"])
def test_one_that_was_ready_and_answers_no_more_hangs_too(health: str) -> None:
    run = Run()
    run.go(3, IDLE)
    run.go(HOLD + 2, None, health)
    assert run.events == [EventName.BACKEND_DOWN]
    assert "it answers nothing" in run.messages[0]


@pytest.mark.parametrize(
    ("process", "signals"),
    [
        (msgspec.structs.replace(STILL, state="D"), {}),
        (STILL, {"device_busy_ratio": 1.0, "device_read_ios_per_second": 0.0}),
        (STILL, {"machine_stall_io_some_ratio": 1.0}),
    ],
)
def test_waiting_for_a_disk_is_no_hang(process: ProcessCounters, signals: dict[str, float | None]) -> None:
    run = Run()
    run.go(5 * HOLD, process=process, signals=signals)
    assert run.events == []


def test_a_prompt_that_reads_for_an_hour_is_no_hang() -> None:
    run = Run()
    stepped = run.go(1)
    for number in range(3600):
        moved = msgspec.structs.replace(STILL, read_bytes=1000 + 4096 * number)
        stepped = run.go(1, None, "busy", process=moved)
    assert run.events == []
    assert not hung(stepped)


def test_a_busy_disk_of_others_does_not_hide_a_hang() -> None:
    run = Run()
    run.go(
        HOLD + 2,
        signals={"device_busy_ratio": 1.0, "device_read_ios_per_second": 900.0, "machine_stall_io_some_ratio": 1.0},
    )
    assert run.events == [EventName.BACKEND_DOWN]


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_process_is_paused(state: str) -> None:
    run = Run()
    run.go(2)
    stepped = run.go(5 * HOLD, None, "busy", process=msgspec.structs.replace(STILL, state=state))
    assert run.events == []
    assert stepped.verdict.phase is Phase.PREFILL
    assert stepped.verdict.reasons[0].signal == "paused"
    assert "SIGSTOP" in stepped.verdict.reasons[0].text
    after = run.go(HOLD - 1)
    assert not hung(after), "what stood still while it was stopped does not count"


@pytest.mark.parametrize("field", ["cpu_ticks", "read_bytes"])
def test_unknown_starts_nothing(field: str) -> None:
    run = Run()
    run.go(5 * HOLD, process=msgspec.structs.replace(STILL, **{field: None}))
    assert run.events == []
    sample = BackendSample("one", process=STILL)
    check = hung_check(run.state.phase.stillness, sample, SETTINGS)
    assert check.beyond is None
    assert check.unknown


def test_our_own_silence_is_not_the_backends() -> None:
    run = Run()
    run.go(3, IDLE)
    run.go(5 * HOLD, None, None)
    assert run.events == []


def test_an_idle_or_loading_one_does_not_hang() -> None:
    run = Run()
    run.go(3 * HOLD, None, "loading")
    run.go(3 * HOLD, IDLE)
    run.go(3 * HOLD, None, "error")
    assert run.events == []


def test_another_process_begins_anew() -> None:
    run = Run()
    run.go(HOLD - 1)
    stepped = run.go(5, process=msgspec.structs.replace(STILL, pid=8))
    assert not hung(stepped)


def test_the_check_counts_down() -> None:
    run = Run()
    run.go(31)
    check = hung_check(run.state.phase.stillness, BackendSample("one", process=STILL), SETTINGS)
    assert (check.held_seconds, check.needed_seconds, check.beyond) == (30.0, 60.0, True)
    idle = hung_check(Stillness(), BackendSample("one", process=STILL), SETTINGS)
    assert (idle.beyond, idle.aside) == (False, "no request is worked on")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["S", "R", "D", "T", None]),
            st.sampled_from(["ok", "busy", "unreachable", "loading", "error", None]),
            st.integers(0, 2),
            st.integers(0, 20),
            st.booleans(),
        ),
        max_size=200,
    )
)
def test_it_never_hangs_before_the_hold_time_has_passed_without_movement(
    ticks: list[tuple[str | None, str | None, int, int, bool]],
) -> None:
    run = Run()
    quiet = 0
    read, cpu = 0, 0
    for state, health, more, ticked, busy in ticks:
        read, cpu = read + more, cpu + ticked
        process = ProcessCounters(7, 1, state=state, major_faults=0, cpu_ticks=cpu, read_bytes=read)
        stepped = run.go(1, BUSY if busy else IDLE, health, process=process)
        moved = more or ticked > 5 or state in ("D", "T") or health == "loading"
        quiet = 0 if moved else quiet + 1
        assert not hung(stepped) or quiet >= HOLD
