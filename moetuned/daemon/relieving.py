"""Relief of one backend: what is known of it, the decision, and carrying it out."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from moetuned import backends
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.model_care import ModelCare, kv_cost
from moetuned.daemon.neighbours import Neighbours
from moetuned.daemon.placeholders import why_not
from moetuned.daemon.service_supervisor import ServiceSupervisor
from moetuned.daemon.settings import Settings, relief_settings
from moetuned.daemon.supervisor import Supervisor
from moetuned.daemon.turned_off import cannot
from moetuned.daemon.watched import Watched
from moetuned.decide import relief
from moetuned.decide.foresight import own_share
from moetuned.decide.growth_kind import OWN
from moetuned.decide.kv_choices import kv_choices
from moetuned.decide.launch_facts import prompt_cache_mib
from moetuned.decide.owner_words import Names
from moetuned.decide.relief_ladder import KvChoices
from moetuned.decide.relief_plan import relief_plan
from moetuned.decide.slot_saving import ConversationFacts, is_unified
from moetuned.decide.supervision import LaunchPlan, Stage
from moetuned.host.service import VALUES
from moetuned.schema.action import RestartBackend
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.capability import Action
from moetuned.schema.event import EventName
from moetuned.schema.relief import ReliefPlan, StepName
from moetuned.schema.units import format_bytes, format_rate
from moetuned.schema.verdict import MemoryState

log = logging.getLogger(__name__)

_DEFAULT_MINIMUM_CONTEXT = 2048
_REPORTS = 4
"""So many of the last reports are shown."""


def relieve(
    watched: Watched,
    settings: Settings,
    now: float,
    care: ModelCare,
    announcer: Announcer,
    neighbours: Neighbours | None,
    among: Sequence[Watched] = (),
) -> None:
    """Decide for this backend at `now` and do it. `among`: all backends, of which another one may be relieved already."""
    memory, supervisor = watched.memory, watched.supervisor
    if supervisor is not None:
        _follow_restart(watched, supervisor)
    if memory.limit_bytes is None:
        watched.would_do = ()
        return
    draining = supervisor is not None and supervisor.draining
    if watched.verdict.memory not in relief.NEAR and not draining:  # as nearly always: nothing more is asked for
        decided = relief.rest(watched.relief, watched.verdict, memory, now)
    else:
        limits = limits_of(watched, settings)
        facts = msgspec.structs.replace(relief_facts(watched, settings), behind=behind(watched, among, settings, now))
        decided = relief.step(watched.relief, watched.verdict, memory, facts, limits, now)
    watched.relief, watched.would_do = decided.state, decided.would_do
    if decided.report is not None:
        report(watched, decided.report)
    if decided.exhausted is not None:
        if neighbours is not None:
            neighbours.settle(watched)
        message = f"{watched.name}: memory is near its limit and moetuned can free no more: {decided.exhausted}"
        reasons = tuple(reason for reason in watched.verdict.reasons if reason.axis == "memory")
        announcer.say(EventName.RELIEF_EXHAUSTED, watched.name, message, reasons)
    if supervisor is not None:
        _meanwhile(supervisor, decided)
    if StepName.STOP_WARMING in decided.own:
        care.interrupt_warming(watched)
    if StepName.RELEASE_PROTECTION in decided.own:
        care.release_protection(watched)
    if decided.restart is not None and supervisor is not None:
        log.warning("%s: restarting it: %s", watched.name, decided.restart.reason)
        report(watched, f"restart: {decided.restart.reason}", logged=True)
        plan = launch_plan(decided.restart, supervisor.state.plan)
        supervisor.restart(
            plan, decided.restart.reason, seconds=decided.drain_seconds or 0.0, end_seconds=decided.end_seconds
        )


def _follow_restart(watched: Watched, supervisor: Supervisor) -> None:
    """The restart that relief asked for is over, however it ended, or somebody else had it called off before it began."""
    state = watched.relief
    if not state.restarting or supervisor.restarting:
        return
    began = supervisor.relief_restarts[-1:] >= state.restarted_at[-1:]
    watched.relief = relief.restarted(state) if began else relief.called_off(state)


def behind(watched: Watched, among: Sequence[Watched], settings: Settings, now: float) -> str | None:
    """Another backend under the same limit that is restarted to free memory, or was a moment ago; None: there is none.

    When memory is critical only what has not ended yet is waited for: after that its memory is seen to be free, or not to be enough.
    """
    for other in among:
        if other is watched or other.supervisor is None or _limit_of(other) != _limit_of(watched):
            continue
        ends = other.supervisor.draining or other.supervisor.state.stage is Stage.STOPPING
        trial = other.relief.trial
        settles = (
            trial is not None and trial.restart and (trial.since is None or now - trial.since < settings.settle_seconds)
        )
        helps = other.relief.restarting or settles
        if helps and (ends or watched.verdict.memory is not MemoryState.CRITICAL):
            return other.name
    return None


def _limit_of(watched: Watched) -> tuple[str, int | None, str | None]:
    return watched.memory.scope, watched.memory.limit_bytes, watched.memory.limit_of


def _meanwhile(supervisor: Supervisor, decided: relief.Relief) -> None:
    """What becomes of a restart that waits, and of a process that was stopped for a second look."""
    if decided.call_off:
        supervisor.call_off()
    elif supervisor.draining and decided.drain_seconds is not None:
        supervisor.hasten(decided.drain_seconds)
    if decided.pause:
        supervisor.hold()
    elif supervisor.held and decided.restart is None:
        supervisor.let_on()


def conversation_facts(watched: Watched) -> ConversationFacts:
    """What is known of its slots and of how they are saved."""
    said, http, kv = (
        watched.description,
        None if watched.sample is None else watched.sample.http,
        _kv_choices(watched, checkpoints=True),
    )
    known = backends.abilities(watched.kind)
    return ConversationFacts(
        url=watched.url,
        pid=None if watched.process is None else watched.process.pid,
        can_save=None if known is None else known.saves_slots,
        directory=None if said is None else said.slot_save_path,
        kv_bytes_per_token=kv_cost(watched),
        unified=is_unified(None if http is None else http.slots, watched.context_now()),
        windows=None if kv is None else kv.checkpoint_bytes > 0,
    )


def _conversations(watched: Watched, plan: RestartBackend | None) -> str | None:
    """What becomes of its conversations in that restart, for people; None: there is none."""
    supervisor = watched.supervisor
    if plan is None or supervisor is None or supervisor.conversations is None:
        return None
    now = supervisor.state.plan
    lost = supervisor.conversations.why_lost(now, launch_plan(plan, now))
    if lost is not None:
        return f"its conversations are lost: {lost}"
    return (
        f"conversations of less than {plan.context_length} tokens go on without being read again, unless memory is critical: they are saved "
        "to disk before and read after"
    )


def launch_plan(restart: RestartBackend, now: LaunchPlan) -> LaunchPlan:
    """What it is started with then; what the restart leaves alone stays."""
    return LaunchPlan(
        restart.context_length,
        now.prompt_cache_mib if restart.prompt_cache_mib is None else restart.prompt_cache_mib,
        now.slots if restart.slots is None else restart.slots,
        now.checkpoints if restart.checkpoints is None else restart.checkpoints,
        now.cache_type if restart.cache_type is None else restart.cache_type,
    )


def plan_of(watched: Watched, settings: Settings, now: float) -> ReliefPlan:
    """What would be done at `now`, for people who ask."""
    limits = limits_of(watched, settings)
    facts = relief_facts(watched, settings)
    plan = relief_plan(watched.relief, watched.verdict, watched.memory, facts, limits, now, watched.relief_reports)
    found = relief.ladder(watched.relief, watched.name, watched.memory, facts, limits, now)
    conversations = _conversations(watched, None if found is None else found.restart)
    return msgspec.structs.replace(plan, conversations=conversations, grow_back=watched.grow_back)


def limits_of(watched: Watched, settings: Settings) -> relief.ReliefSettings:
    """Relief's limits under the tightest memory limit that the backend has."""
    memory = watched.memory
    return relief_settings(settings, memory.limit_bytes or 0, watched.cache_when_steady_bytes, memory.own_kept_bytes)


def _cannot_restart(watched: Watched, settings: Settings) -> str | None:
    """Why a restart is not possible, or of no use whatever it is started with."""
    kept = watched.memory.own_kept_bytes
    if kept:
        return (
            f"its cgroup keeps {format_bytes(kept)} of page cache (memory.min): as much more of that as it gives back it would keep, so a "
            "restart frees nothing for others; lower MemoryMin= of its unit"
        )
    return None if watched.supervisor is None else cannot(watched, settings, Action.RESTART)


def relief_facts(watched: Watched, settings: Settings) -> relief.ReliefFacts:
    """What relief needs to know of a backend."""
    supervisor = watched.supervisor
    own, when_ready = watched.own_bytes(), watched.own_bytes_when_ready
    seconds, source = restart_seconds(watched)
    plan = None if supervisor is None else supervisor.state.plan

    lacks, names = _settable(watched.kind)

    def sets(value: str) -> bool:
        return value in names if supervisor is None else supervisor.sets(value)

    return relief.ReliefFacts(
        supervised=supervisor is not None,
        context_changeable=supervisor is None or sets("context"),
        prompt_cache_changeable=sets("prompt_cache_mib"),
        context_length=watched.context_now(),
        minimum_context=least_context(watched, settings),
        prompt_cache_mib=prompt_cache_mib(watched.kind, watched.description, watched.prompt_cache_mib()),
        kv_bytes_per_token=kv_cost(watched),
        ready=watched.ready_at is not None and (supervisor is None or _may_act(watched, supervisor)),
        slots_changeable=sets("slots"),
        checkpoints_changeable=sets("checkpoints"),
        cache_type_changeable=sets("cache_type"),
        slots=watched.slots_now(),
        checkpoints=plan.checkpoints if plan is not None and sets("checkpoints") else None,
        cache_type=None if watched.description is None else watched.description.cache_type_k,
        kv=_kv_choices(watched, checkpoints="checkpoints" not in lacks or sets("checkpoints")),
        grown_bytes=None if own is None or when_ready is None else max(0, own - when_ready),
        own_bytes=own,
        own_growth_bytes_per_second=_own_growth(watched),
        warming=watched.warming is not None,
        locked_bytes=watched.protect.locked_bytes if watched.protect.state in ("locking", "held") else 0,
        restart_seconds=seconds,
        restart_source=source,
        draining=supervisor is not None and supervisor.draining,
        obstacle=None if supervisor is None or supervisor.check is None else supervisor.check.obstacle,
        cannot_restart=_cannot_restart(watched, settings),
        pausable=settings.pause
        and supervisor is not None
        and supervisor.pausable
        and cannot(watched, settings, Action.PAUSE) is None,
        held=supervisor is not None and supervisor.held,
        kind=watched.kind,
        lacks=lacks,
        names=names,
        unset={name: why_not(supervisor, name) for name in VALUES if not sets(name)}
        if isinstance(supervisor, ServiceSupervisor)
        else {},
    )


def _own_growth(watched: Watched) -> float | None:
    """How much of the growth towards its limit is its own, bytes a second."""
    if watched.signals is None:
        return None
    own, others, growth = (
        watched.signals.get("anonymous_growth_bytes_per_second"),
        watched.signals.get("others_growth_to_limit_bytes_per_second"),
        watched.signals.get("growth_to_limit_bytes_per_second"),
    )
    return own_share(own, others, growth, is_own=watched.memory.growth_kind in OWN)


def least_context(watched: Watched, settings: Settings) -> int:
    """The shortest context that the config allows for it, tokens."""
    context = None if watched.config is None else watched.config.context
    minimum = _DEFAULT_MINIMUM_CONTEXT if context is None else context.minimum
    return max(minimum, settings.minimum_context or 0)


def _may_act(watched: Watched, supervisor: Supervisor) -> bool:
    """One that is paused by hand does not grow, and is left alone until memory is critical."""
    resting = supervisor.paused_wall_seconds is not None and watched.verdict.memory is not MemoryState.CRITICAL
    return supervisor.state.stage == Stage.READY and not resting


def restart_seconds(watched: Watched) -> tuple[float | None, str]:
    """How long a restart takes, by the last load, else by the model's size and its disk; None: unknown, and why."""
    supervisor, model = watched.supervisor, watched.model_identity
    if supervisor is not None and supervisor.load_seconds is not None:
        return supervisor.load_seconds, "as its last load"
    if model is None:
        return None, "its model is not known"
    rate = watched.sequential_bytes_per_second
    if not rate:
        return None, "neither a load of it nor its disk was measured yet"
    return model.size_bytes / rate, f"{format_bytes(model.size_bytes)} at the {format_rate(rate)} that its disk gave"


def advice(watched: Watched, settings: Settings, now: float) -> str | None:
    """What the owner of a backend that moetuned only watches can do about its memory, one sentence; None: nothing that is known."""
    if watched.supervisor is not None or watched.memory.limit_bytes is None:
        return None
    facts = relief_facts(watched, settings)
    limits = limits_of(watched, settings)
    found = relief.ladder(watched.relief, watched.name, watched.memory, facts, limits, now)
    if found is None or found.restart is None:
        return None
    return f"moetuned does not supervise it; to free memory, {relief.yourself(found.restart, facts)}"


def _settable(kind: str) -> tuple[frozenset[str], Names]:
    """What a kind cannot be given, and how it is given the rest; of an unknown kind it lacks nothing."""
    if kind not in backends.names():
        return frozenset(), {}
    known = backends.load(kind)
    return frozenset(
        value for value in VALUES if value not in known.SETTINGS and not known.ABILITIES.ways(value)
    ), known.SETTINGS


def _kv_choices(watched: Watched, *, checkpoints: bool) -> KvChoices | None:
    said, model = watched.description, watched.model
    if model is None or said is None:
        return None
    # Only llama.cpp's server takes four slots where nothing is said.
    slots = watched.slots_now() or (None if said.dialect is Dialect.LLAMA else 1)
    key = (model.identity, said, watched.context_now(), slots, checkpoints)
    known = watched.kv_choices
    if known is None or known[0] != key:
        choices = kv_choices(
            model.headers[0].metadata,
            watched.context_now(),
            slots,
            said.cache_type_k,
            said.cache_type_v,
            said.micro_batch_tokens,
            said.kv_unified,
        )
        if choices is not None and not checkpoints:
            choices = msgspec.structs.replace(choices, checkpoint_bytes=0)
        known = watched.kv_choices = (key, choices)
    return known[1]


def report(watched: Watched, text: str, *, logged: bool = False) -> None:
    """Keep one sentence of what was done, or became of it, for people who ask. `logged`: the log has it already."""
    if not logged:
        log.info("%s: relief: %s", watched.name, text)
    watched.relief_reports = (*watched.relief_reports, text)[-_REPORTS:]
