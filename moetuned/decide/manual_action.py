"""Whether what somebody asks of a backend by hand can be done, and with what it would be started. Pure; a refusal is one sentence.

A restart by hand is no relief: it has neither budget nor cool-down, and it is the way out when a backend failed so often that moetuned
left it stopped.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.schema.supervision import BackendDo

_CHOSEN_BY_FLAG = ("--rope", "--yarn")
"""Flags of llama.cpp that stretch a model beyond what it was trained for; who gives one knows."""


class ManualActionFacts(msgspec.Struct, frozen=True):
    """What is known of the backend. `state` None: moetuned only watches it. `waiting`: a restart by hand waits for its requests already.

    `runs`: it has a process. `paused`: that is stopped. `most_context`: tokens; None: not known, or not limited.
    """

    backend: str
    state: Supervision | None = None
    waiting: bool = False
    runs: bool = False
    paused: bool = False
    context_changeable: bool = False
    minimum_context: int = 0
    most_context: int | None = None


def refusal(facts: ManualActionFacts, do: BackendDo, context: int | None = None) -> str | None:
    """Why it cannot be done; None: it can. `context`: wanted, tokens."""
    name, state = facts.backend, facts.state
    if state is None:
        return (
            f"moetuned only watches {name} and cannot {do.value} it; do that where it was started, or let moetuned run it "
            "(supervise: in the config)"
        )
    if state.stage is Stage.STOPPING:
        return f"{name} is being {'ended' if state.next_plan is None else 'restarted'} already"
    if do is BackendDo.RESTART:
        return _no_restart(facts, state, context)
    if not facts.runs:
        return f"{name} is not running"
    if do is BackendDo.PAUSE:
        if facts.waiting:
            return f"{name} is about to be restarted"
        return f"{name} is paused already" if facts.paused else None
    return None if facts.paused else f"{name} is not paused"


def _no_restart(facts: ManualActionFacts, state: Supervision, context: int | None) -> str | None:
    name = facts.backend
    if facts.waiting:
        return f"{name} is restarted already, as soon as its requests are answered; --now does not wait for them"
    if state.stage is Stage.LOADING and state.restart_began is not None:
        return f"{name} is being restarted already: it loads its model"
    if context is None:
        return None
    if not facts.context_changeable:
        return f"the context of {name} cannot be changed: what starts it takes none; moetunectl backend show {name} says where it is looked for"
    if context < facts.minimum_context:
        return f"{context} tokens are fewer than the {facts.minimum_context} that the config allows at least for {name}"
    if facts.most_context is not None and context > facts.most_context:
        return f"{context} tokens are more than the {facts.most_context} that the model of {name} was trained for"
    return None


def plan_of(state: Supervision, context: int | None) -> LaunchPlan:
    """What a restart by hand starts it with: what the restart that waits was to give it, else what the config wants since it was changed,
    else what it has; with this context.
    """
    plan = state.next_plan or state.later_plan or state.plan
    return plan if context is None else msgspec.structs.replace(plan, context_length=context)


def most_context(trained_tokens: int | None, slots: int | None, command: tuple[str, ...]) -> int | None:
    """The longest context that makes sense: slots share it, and each gets no more than the model was trained for. None: not known."""
    if trained_tokens is None or any(argument.startswith(_CHOSEN_BY_FLAG) for argument in command):
        return None
    return trained_tokens * max(1, slots or 1)
