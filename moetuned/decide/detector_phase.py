"""The phase axis: what the backend is doing, from its process and what it answers."""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_hung import Stillness, hung_text, reasons_of, step_stillness
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendHttp, BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Phase, Reason

_WORKING = frozenset({Phase.PREFILL, Phase.DECODE})
_DEFAULT_SETTINGS = DetectorSettings()
_READY = frozenset({Phase.IDLE, Phase.PREFILL, Phase.DECODE})


class PhaseState(msgspec.Struct, frozen=True):
    """What is remembered: `was_ready` and `process` are of the process seen last."""

    phase: Phase = Phase.UNKNOWN
    since: float | None = None
    process: tuple[int, int | None] | None = None
    was_ready: bool = False
    down: bool = False
    oom_kills: int | None = None
    stillness: Stillness = Stillness()


class PhaseStep(msgspec.Struct, frozen=True):
    """The next state, why, and what began: an event's name and message. `more`: that it hangs or is paused."""

    state: PhaseState
    reason: Reason
    begun: tuple[tuple[EventName, str], ...] = ()
    more: tuple[Reason, ...] = ()

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All of them, the weightiest first."""
        return (*self.more, self.reason)


def step_phase(
    state: PhaseState,
    sample: BackendSample,
    at_seconds: float,
    *,
    address_known: bool = False,
    signals: Signals | None = None,
    settings: DetectorSettings = _DEFAULT_SETTINGS,
    clock_ticks: int = 100,
) -> PhaseStep:
    """Phase at this sample. `address_known`: it can be asked over HTTP, so no answer is one that did not come.

    Without `signals` nothing is said of whether it hangs.
    """
    seen = state.process if sample.process is None else (sample.process.pid, sample.process.start_ticks)
    if seen != state.process:
        state = msgspec.structs.replace(
            state, process=seen, was_ready=False, phase=Phase.UNKNOWN, since=None, stillness=Stillness()
        )
    phase, text = _phase(state, sample, address_known=address_known)
    ready = phase in _READY or _answers_only(sample.http)
    begun: list[tuple[EventName, str]] = []
    down = state.down
    still = state.stillness
    if signals is not None:
        still = step_stillness(still, sample, signals, settings, was_ready=state.was_ready, clock_ticks=clock_ticks)
    oom_kills = state.oom_kills if sample.cgroup is None or sample.cgroup.oom_kills is None else sample.cgroup.oom_kills
    if phase is Phase.ABSENT and not down and state.process is not None:
        down = True
        killed = oom_kills is not None and state.oom_kills is not None and oom_kills > state.oom_kills
        begun.append((EventName.BACKEND_DOWN, _down_message(state, killed=killed)))
    elif still.hung and not down:
        down = True
        begun.append((EventName.BACKEND_DOWN, _hung_message(still)))
    elif ready and down and not still.hung:
        down = False
        begun.append((EventName.BACKEND_RECOVERED, f"{sample.name} answers again"))
    next_state = PhaseState(
        phase=phase,
        since=state.since if phase is state.phase and state.since is not None else at_seconds,
        process=seen,
        was_ready=state.was_ready or ready,
        down=down,
        oom_kills=oom_kills,
        stillness=still,
    )
    reason = Reason(axis="phase", signal="http", value=None, limit=None, held_seconds=None, text=text)
    return PhaseStep(next_state, reason, tuple(begun), reasons_of(still, settings))


def _hung_message(still: Stillness) -> str:
    return f"it hangs: {hung_text(still).removeprefix('hung: ')}; look at its log and restart it"


def _down_message(state: PhaseState, *, killed: bool) -> str:
    pid = "?" if state.process is None else state.process[0]
    when = "while it was loading " if state.phase is Phase.LOADING else ""
    if killed:
        return (
            f"its process (pid {pid}) ended {when}and the kernel's OOM killer acted in its memory cgroup: "
            "give it more memory or a shorter context"
        )
    return f"its process (pid {pid}) ended {when}unexpectedly: look at its log"


def _phase(state: PhaseState, sample: BackendSample, *, address_known: bool) -> tuple[Phase, str]:
    if sample.process is None:
        if sample.process_gone:
            return Phase.ABSENT, "no process"
        return Phase.UNKNOWN, "its process could not be read"
    if sample.http is None and address_known:
        return (
            Phase.UNKNOWN,
            "it gave no fresh answer over HTTP" if state.was_ready else "it has not answered over HTTP yet",
        )
    if sample.http is None:
        return Phase.UNKNOWN, "no HTTP address is known to ask"
    return _answered(state, sample.http)


def _answered(state: PhaseState, http: BackendHttp) -> tuple[Phase, str]:
    match http.health:
        case "loading":
            return Phase.LOADING, "/health says it loads the model"
        case "busy":
            return state.phase, "/health did not answer in time: busy, the last phase is kept"
        case "unreachable" if not state.was_ready:
            return Phase.LOADING, "its process runs and does not listen yet"
        case "unreachable":
            return Phase.UNKNOWN, "it no longer listens"
        case "error":
            return (
                Phase.UNKNOWN,
                "/health gave no answer of a llama-server" if http.tells_slots else "it answers as no such server",
            )
    if http.sleeping:
        return Phase.IDLE, "it sleeps" if http.tells_slots else "no model is loaded"
    return _working(state, http)


def _answers_only(http: BackendHttp | None) -> bool:
    """Whether it is ready, and of a kind whose phase may never be known."""
    return http is not None and http.health == "ok" and not http.tells_slots


def _working(state: PhaseState, http: BackendHttp) -> tuple[Phase, str]:
    if http.slots is not None and all(slot.processing is not None for slot in http.slots):
        busy = [slot for slot in http.slots if slot.processing]
        if not busy:
            return Phase.IDLE, "no slot is busy"
        if any(slot.decoded_tokens for slot in busy):
            return Phase.DECODE, f"{len(busy)} of {len(http.slots)} slots busy, generating"
        if all(slot.decoded_tokens is None for slot in busy):
            return Phase.UNKNOWN, f"{len(busy)} of {len(http.slots)} slots busy, doing what is not told"
        return Phase.PREFILL, f"{len(busy)} of {len(http.slots)} slots busy, processing a prompt"
    if not http.slots_asked and http.health == "ok":
        return Phase.IDLE, "its process does nothing, so /slots is not asked and it may sleep"
    if http.requests_processing == 0:
        return Phase.IDLE, "no request is processed"
    if not http.tells_slots:
        if not http.requests_processing:
            return Phase.UNKNOWN, "it is ready; what it does, its kind does not tell"
        requests = f"{http.requests_processing:.0f} request{'s' if http.requests_processing > 1 else ''}"
        return Phase.UNKNOWN, f"it works on {requests}; whether on prompt or answer, its kind does not tell"
    if http.wants_key:
        return Phase.UNKNOWN, "it wants an API key for /slots, so its phase and speed stay unknown"
    if state.phase in _WORKING:
        return state.phase, "/slots did not answer: busy, the last phase is kept"
    return Phase.UNKNOWN, "/slots did not answer"
