"""What a config may have moetuned do, and what a set of rehearsals turns off. Pure.

Only a definite refusal turns an action off, and only one that would otherwise be met on the day it is needed; what merely tells less (a
signal, a cause) says so by itself.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence

from moetuned.parse.config_values import wished_swap
from moetuned.schema.alert import ExecAlert
from moetuned.schema.capability import (
    Action,
    Answer,
    BackendNeeds,
    Capability,
    RehearsalFacts,
    SettingFile,
    Tried,
    TurnedOff,
)
from moetuned.schema.config import Backend, Config, Mode, Protect
from moetuned.schema.supervise import SuperviseCommand, SuperviseContainer, SuperviseProcess, SuperviseUnit
from moetuned.schema.tunable import PlannedStep, StepKind

TURNED_OFF = frozenset(
    {
        Action.CHANGE_SETTING,
        Action.SWAP_FILE,
        Action.ZRAM,
        Action.RESTART,
        Action.PAUSE,
        Action.WARM,
        Action.PROTECT,
        Action.PAGE_OUT,
    }
)
"""The others are tried all the same: that a start or an alert fails is told then, and nothing is worse for the try."""
TOLD = TURNED_OFF | {Action.SAVE_CONVERSATIONS}
"""Tried all the same, but what a restart loses has to be known before it."""
_SLOT_FLAGS = ("--slot-save-path",)
_WORDS = {
    Action.CHANGE_SETTING: "change a setting",
    Action.SWAP_FILE: "make a swap file",
    Action.ZRAM: "make swap in compressed memory",
    Action.START: "start",
    Action.RESTART: "restart",
    Action.PAUSE: "pause",
    Action.WARM: "warm",
    Action.PROTECT: "lock the model of",
    Action.PAGE_OUT: "page out the model of",
    Action.SAVE_CONVERSATIONS: "save the conversations of",
    Action.ALERT: "tell",
    Action.OBSERVE: "see",
    Action.KEEP: "write down",
}


def rehearsal_facts(
    config: Config,
    state_directory: str,
    runtime_directory: str,
    steps: Iterable[PlannedStep] = (),
    cgroups: Mapping[str, str] | None = None,
) -> RehearsalFacts:
    """What there is to try for this config. `steps`: of the tuning plan; `cgroups`: of backends that run, by name."""
    swap = wished_swap(config.tuning)
    return RehearsalFacts(
        state_directory=state_directory,
        runtime_directory=runtime_directory,
        settings=_settings(steps),
        swap_file=None if swap is None else swap.file,
        zram=swap is not None and swap.zram is not None,
        backends=tuple(_needs_of(one, (cgroups or {}).get(one.name)) for one in config.backends),
        discovers=config.watch.discover,
        acts=config.relief.mode is Mode.ACT,
        pauses=config.relief.mode is Mode.ACT and config.relief.pause,
        warms=config.warm.enabled,
        protects=config.warm.protect is not Protect.OFF,
        prompts=config.warm.prompts if config.warm.prompts.startswith("/") else None,
        hook_directories=tuple(dict.fromkeys(one.directory for one in config.alerts if isinstance(one, ExecAlert))),
        metric_file=config.metrics.textfile,
    )


def _settings(steps: Iterable[PlannedStep]) -> tuple[SettingFile, ...]:
    """Those that the plan has a value for. One that it skips for a reason of its own needs nothing."""
    return tuple(
        SettingFile(step.wanted.spec.name, step.wanted.cell.path, step.wanted.spec.place.unit)
        for step in steps
        if (step.blocked or step.kind is not StepKind.SKIPPED) and "*" not in step.wanted.cell.path
    )


def _needs_of(backend: Backend, cgroup: str | None) -> BackendNeeds:
    match backend.supervise:
        case SuperviseProcess() as own:
            return BackendNeeds(
                backend.name,
                "process",
                model=backend.model,
                cgroup=own.cgroup or cgroup,
                limits=own.limits,
                scope=own.scope and own.cgroup is None,
                slot_directory=_slot_directory(own),
            )
        case SuperviseUnit() as unit:
            return BackendNeeds(backend.name, "systemd", unit.unit, backend.model, cgroup)
        case SuperviseContainer() as container:
            return BackendNeeds(backend.name, "docker", container.engine, backend.model, cgroup)
        case SuperviseCommand() as script:
            return BackendNeeds(backend.name, "command", script.restart[0], backend.model, cgroup)
        case _:
            return BackendNeeds(backend.name, "none", None, backend.model, cgroup)


def _slot_directory(own: SuperviseProcess) -> str | None:
    for flag in _SLOT_FLAGS:
        for place, word in enumerate(own.command):
            said = own.command[place + 1] if word == flag and place + 1 < len(own.command) else None
            said = word.removeprefix(f"{flag}=") if word.startswith(f"{flag}=") else said
            if said is not None:
                return posixpath.join(own.directory or "/", said)
    return None


def turned_off(capabilities: Iterable[Capability]) -> tuple[TurnedOff, ...]:
    """What those refuse, one for each action: the first refusal of it counts, and its reason is told."""
    found: dict[tuple[Action, str | None, str | None], TurnedOff] = {}
    for one in capabilities:
        if one.answer is not Answer.NO:
            continue
        for action in one.actions:
            if action not in TOLD:
                continue
            subject = one.subject if action is Action.CHANGE_SETTING else None
            key = (action, one.backend, subject)
            known = found.get(key)
            # A refusal for everybody weighs more than one that is only about others' processes.
            if known is None or (known.other_user and not one.other_user):
                found[key] = TurnedOff(action, _why(one), sentence(one, action), one.backend, subject, one.other_user)
    return tuple(found.values())


def refused(capabilities: Iterable[Capability]) -> tuple[Tried, ...]:
    """The tries that turn something off."""
    return tuple(one.tried for one in capabilities if one.answer is Answer.NO and not TOLD.isdisjoint(one.actions))


def with_allowed(capabilities: Iterable[Capability], again: Iterable[Capability]) -> tuple[Capability, ...]:
    """What is known after refused ones were tried again: only a yes takes the place of a no. What is unknown for a moment is not mended."""
    allowed = {one.tried: one for one in again if one.answer is Answer.YES}
    return tuple(allowed.get(one.tried, one) for one in capabilities)


def _why(one: Capability) -> str:
    return f"{one.why}; {one.cure}" if one.cure else one.why


def sentence(one: Capability, action: Action) -> str:
    """What cannot be done and why, for one line of the status: "restart glm (llama.service): systemd …"."""
    about = one.backend
    if action in (Action.CHANGE_SETTING, Action.ALERT):
        about = None
    whom = "" if about is None else f" {about}"
    if about is None and action in (Action.RESTART, Action.PAUSE, Action.WARM, Action.PROTECT, Action.PAGE_OUT):
        whom = " backends"
    others = " of other users" if one.other_user and about is None else ""
    return f"{_WORDS[action]}{whom}{others} ({one.subject}): {_why(one)}"


def lines_of(off: Iterable[TurnedOff]) -> tuple[str, ...]:
    """What is turned off, each once, for people. Several backends or settings with the same reason are one line."""
    by_reason: dict[tuple[str, str], list[TurnedOff]] = {}
    for one in off:
        by_reason.setdefault((one.action.value, one.why), []).append(one)
    lines = []
    for same in by_reason.values():
        more = "" if len(same) == 1 else f" (and {len(same) - 1} more)"
        lines.append(f"{same[0].text}{more}")
    return tuple(lines)


def why_not(
    off: Sequence[TurnedOff],
    action: Action,
    backend: str | None = None,
    *,
    other_user: bool | None = None,
    subject: str | None = None,
) -> str | None:
    """Why an action is turned off, one sentence; None: it is not.

    `other_user`: whether it is about a process of another user; None: not known, and then what only concerns those turns nothing off.
    """
    for one in off:
        if one.action is not action or one.backend not in (None, backend):
            continue
        if one.subject is not None and one.subject != subject:
            continue
        if one.other_user and not other_user:
            continue
        return f"turned off: {one.why}"
    return None
