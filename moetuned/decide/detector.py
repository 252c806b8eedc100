"""The detector: from signals to a verdict, one step a tick, without a clock of its own.

State goes in and comes out; nothing else is remembered. Unknown signals begin nothing.
"""

from __future__ import annotations

import msgspec

from moetuned.decide import detector_paging
from moetuned.decide.detector_memory import MemoryAxis, shown, step_memory
from moetuned.decide.detector_paging import MAX_BESTS, PagingAxis, step_paging
from moetuned.decide.detector_phase import PhaseState, step_phase
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.growth_kind import GrowthState, squeezed_by
from moetuned.decide.paging_evidence import Best
from moetuned.decide.prefill import PrefillState, step_prefill
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Paging, Reason, Verdict

__all__ = ["Begun", "DetectorSettings", "DetectorState", "Step", "initial", "step"]


_SQUEEZED = ("cache_lost_ratio", "own_swap_in_bytes_per_second")


class DetectorState(msgspec.Struct, frozen=True):
    """What is remembered of one backend between ticks."""

    backend: str
    phase: PhaseState = PhaseState()
    paging: PagingAxis = PagingAxis()
    memory: MemoryAxis = MemoryAxis()
    prefill: PrefillState = PrefillState()


class Begun(msgspec.Struct, frozen=True):
    """Something began or ended at this tick. `message` is one sentence a person can act on."""

    name: EventName
    message: str
    reasons: tuple[Reason, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """What a tick gave."""

    state: DetectorState
    verdict: Verdict
    begun: tuple[Begun, ...] = ()


def initial(backend: str, best: tuple[Best, ...] = (), thrash_since: float | None = None) -> DetectorState:
    """The state before the first tick. `best`: its warm best as an earlier daemon saw it; `thrash_since`: a thrash of this very
    process began then (monotonic seconds), as that one told: it is not told again, and its end is.
    """
    best = best[-MAX_BESTS:]
    if thrash_since is None:
        return DetectorState(backend, paging=PagingAxis(best=best))
    return DetectorState(backend, paging=PagingAxis(Paging.THRASHING, thrash_since, best=best))


def forget_idle(state: DetectorState) -> DetectorState:
    """We ourselves page the model out: what leaves memory now, nobody has evicted."""
    return msgspec.structs.replace(state, paging=detector_paging.forget_idle(state.paging))


def step(
    state: DetectorState,
    signals: Signals,
    sample: BackendSample,
    facts: BackendFacts,
    settings: DetectorSettings,
) -> Step:
    """The verdict at `signals.at_seconds`, and what began with it."""
    phase = step_phase(
        state.phase,
        sample,
        signals.at_seconds,
        address_known=facts.address_known,
        signals=signals,
        settings=settings,
        clock_ticks=facts.clock_ticks,
    )
    same_process = state.phase.process in (None, phase.state.process)
    paging = step_paging(
        state.paging,
        signals,
        sample,
        phase.state.phase,
        facts,
        settings,
        same_process=same_process,
    )
    prefill = step_prefill(state.prefill if same_process else PrefillState(), sample, signals, phase.state.phase, facts)
    memory = step_memory(state.memory, signals, phase.state.phase, settings, sample, facts)
    verdict = Verdict(
        backend=state.backend,
        at_seconds=signals.at_seconds,
        phase=phase.state.phase,
        paging=paging.axis.paging,
        memory=shown(memory.axis),
        reasons=(*phase.reasons, *paging.reasons, *memory.reasons),
        phase_since=phase.state.since,
        paging_since=paging.axis.since,
        memory_since=memory.axis.since,
    )
    begun = (
        *(Begun(name, message, phase.reasons) for name, message in phase.begun),
        *(
            Begun(name, _squeezed(name, message, paging.reasons, memory.axis.growth), paging.reasons)
            for name, message in paging.begun
        ),
        *(Begun(name, message, memory.reasons) for name, message in memory.begun),
    )
    return Step(DetectorState(state.backend, phase.state, paging.axis, memory.axis, prefill), verdict, begun)


def _squeezed(name: EventName, message: str, reasons: tuple[Reason, ...], growth: GrowthState) -> str:
    """A thrash's message with what takes the memory, where it thrashes because its cache shrank or its memory is swapped, or its
    limit was lowered just before.
    """
    told = reasons[0].signal in _SQUEEZED or growth.limits.lowered is not None
    by = squeezed_by(growth) if name is EventName.THRASH_BEGIN and told else None
    return message if by is None else f"{message}; {by}"
