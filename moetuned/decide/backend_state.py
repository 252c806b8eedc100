"""How a backend is, in one word: for a table. What stands in its way goes before what it does."""

from __future__ import annotations

from moetuned.decide.supervision import Stage, Supervision
from moetuned.schema.verdict import Paging, Phase, Verdict

STATE_WORDS = (
    "absent", "answering", "broken", "draining", "ending", "hung", "idle", "loading", "paused", "prefill", "restarting", "starting",
    "stopped", "thrashing", "unknown", "waiting",
)  # fmt: skip
"""Every word there is."""

_PHASES = {
    Phase.ABSENT: "absent",
    Phase.LOADING: "loading",
    Phase.IDLE: "idle",
    Phase.PREFILL: "prefill",
    Phase.DECODE: "answering",
    Phase.UNKNOWN: "unknown",
}
_STAGES = {
    Stage.STOPPED: "stopped", Stage.WAITING: "waiting", Stage.BROKEN: "broken",
    Stage.DRAINING: "draining", Stage.SAVING: "draining", Stage.RESTORING: "restarting",
}  # fmt: skip


def state_word(verdict: Verdict, state: Supervision | None, *, paused: bool = False, known: bool = True) -> str:
    """One word. `state` None: only watched. `paused`: moetuned stopped its process. `known`: who runs it says whether it runs.

    absent, stopped, starting, loading, restarting, draining, ending, waiting (until it is tried again), broken (it failed so often that
    it is left stopped), paused, hung, thrashing, prefill, answering, idle, unknown.
    """
    signals = {reason.signal for reason in verdict.reasons if reason.axis == "phase"}
    if (paused or "paused" in signals) and (state is None or state.stage is not Stage.STOPPING):
        return "paused"
    if state is not None and not known and state.stage is Stage.STOPPED:
        return "unknown"
    if state is not None and (word := _of_supervision(state, verdict.phase)) is not None:
        return word
    if "hung" in signals:
        return "hung"
    return "thrashing" if verdict.paging is Paging.THRASHING else _PHASES[verdict.phase]


def _of_supervision(state: Supervision, phase: Phase) -> str | None:
    """None: what it does says it."""
    match state.stage:
        case Stage.STOPPING:
            return "ending" if state.next_plan is None else "restarting"
        case Stage.LOADING if state.restart_began is not None:
            return "restarting"
        case Stage.LOADING if phase in (Phase.ABSENT, Phase.UNKNOWN):
            return "starting"
    return _STAGES.get(state.stage)
