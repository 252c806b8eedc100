from __future__ import annotations

import msgspec
import pytest
from detector_scenes import DECODE, GONE, IDLE, PREFILL, backend

from moetuned.decide.detector_phase import PhaseState, step_phase
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendHttp, BackendSample, ProcessCounters, Slot
from moetuned.schema.verdict import Phase


def with_http(http: BackendHttp | None) -> BackendSample:
    return BackendSample("one", process=ProcessCounters(7, 1), http=http)


@pytest.mark.parametrize(
    ("sample", "phase"),
    [
        (backend(DECODE), Phase.DECODE),
        (backend(PREFILL), Phase.PREFILL),
        (backend((*PREFILL, *DECODE)), Phase.DECODE),
        (backend(IDLE), Phase.IDLE),
        (backend(()), Phase.IDLE),
        (backend((Slot(0, processing=True),)), Phase.UNKNOWN),
        (backend(None, "loading"), Phase.LOADING),
        (backend(None, "unreachable"), Phase.LOADING),
        (backend(None, "busy"), Phase.UNKNOWN),
        (backend(None, "error"), Phase.UNKNOWN),
        (with_http(None), Phase.UNKNOWN),
        (with_http(BackendHttp(health="ok", requests_processing=0.0)), Phase.IDLE),
        (with_http(BackendHttp(health="ok", requests_processing=1.0)), Phase.UNKNOWN),
        (with_http(BackendHttp(health="ok", sleeping=True)), Phase.IDLE),
        (with_http(BackendHttp(health="ok", slots_asked=False)), Phase.IDLE),
        (GONE, Phase.ABSENT),
        (BackendSample("one"), Phase.UNKNOWN),
    ],
)
def test_phase_at_first_sight(sample: BackendSample, phase: Phase) -> None:
    assert step_phase(PhaseState(), sample, 1.0).state.phase is phase


def test_no_answer_is_told_from_no_address() -> None:
    silent = with_http(None)
    assert "no HTTP address" in step_phase(PhaseState(), silent, 1.0).reason.text
    first = step_phase(PhaseState(), silent, 1.0, address_known=True)
    assert first.reason.text == "it has not answered over HTTP yet"
    ready = step_phase(first.state, backend(IDLE), 2.0, address_known=True).state
    later = step_phase(ready, msgspec.structs.replace(backend(IDLE), http=None), 3.0, address_known=True)
    assert (later.state.phase, later.reason.text) == (Phase.UNKNOWN, "it gave no fresh answer over HTTP")


@pytest.mark.parametrize("sample", [backend(None, "busy"), backend(None, "ok")])
def test_no_answer_in_time_keeps_a_working_phase(sample: BackendSample) -> None:
    state = step_phase(PhaseState(), backend(DECODE), 1.0).state
    assert step_phase(state, sample, 2.0).state.phase is Phase.DECODE


def test_one_that_wants_a_key_says_so() -> None:
    asked = BackendSample("one", process=ProcessCounters(7, 1), http=BackendHttp("ok", wants_key=True))
    stepped = step_phase(PhaseState(), asked, 1.0)
    assert stepped.state.phase is Phase.UNKNOWN
    assert "it wants an API key" in stepped.reason.text


def test_one_that_was_ready_and_listens_no_more_is_not_loading() -> None:
    state = step_phase(PhaseState(), backend(IDLE), 1.0).state
    assert step_phase(state, backend(None, "unreachable"), 2.0).state.phase is Phase.UNKNOWN


def test_since_is_kept_while_the_phase_lasts() -> None:
    state = step_phase(PhaseState(), backend(IDLE), 1.0).state
    state = step_phase(state, backend(IDLE), 2.0).state
    assert state.since == 1.0
    assert step_phase(state, backend(DECODE), 3.0).state.since == 3.0


def test_what_was_never_there_cannot_go_down() -> None:
    assert step_phase(PhaseState(), GONE, 1.0).begun == ()


def test_down_is_told_once_and_names_the_oom_killer() -> None:
    state = step_phase(PhaseState(), backend(None, "loading", oom_kills=0), 1.0).state
    killed = msgspec.structs.replace(GONE, cgroup=backend(oom_kills=1).cgroup)
    stepped = step_phase(state, killed, 2.0)
    ((name, message),) = stepped.begun
    assert name is EventName.BACKEND_DOWN
    assert "while it was loading" in message
    assert "OOM killer" in message
    assert step_phase(stepped.state, killed, 3.0).begun == ()


def test_an_ordinary_end_blames_nobody() -> None:
    state = step_phase(PhaseState(), backend(IDLE, oom_kills=4), 1.0).state
    ((_, message),) = step_phase(state, GONE, 2.0).begun
    assert "pid 7" in message
    assert "OOM" not in message


def test_recovered_only_when_it_answers() -> None:
    state = step_phase(PhaseState(), backend(IDLE), 1.0).state
    state = step_phase(state, GONE, 2.0).state
    loading = step_phase(state, backend(None, "loading", pid=8), 3.0)
    assert loading.begun == ()
    ((name, _),) = step_phase(loading.state, backend(IDLE, pid=8), 4.0).begun
    assert name is EventName.BACKEND_RECOVERED


def test_another_process_starts_anew() -> None:
    state = step_phase(PhaseState(), backend(DECODE), 1.0).state
    assert step_phase(state, backend(None, "busy", pid=8), 2.0).state.phase is Phase.UNKNOWN
    assert step_phase(state, backend(None, "unreachable", pid=8), 2.0).state.phase is Phase.LOADING
