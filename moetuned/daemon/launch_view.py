"""What people are told of who runs a backend, how it was started, and what a restart may change."""

from __future__ import annotations

from collections.abc import Iterator

from moetuned import backends
from moetuned.daemon.manual_actions import trained_tokens
from moetuned.daemon.placeholders import where, why_not
from moetuned.daemon.relieving import restart_seconds
from moetuned.daemon.watched import Watched
from moetuned.host.service import VALUES
from moetuned.parse.cgroup_names import cgroup_name, container_of
from moetuned.schema.backend_abilities import Abilities
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.supervision import Change, LaunchView, SupervisionView


def supervision_view(watched: Watched) -> SupervisionView:
    """Who runs it."""
    supervisor = watched.supervisor
    seconds, source = restart_seconds(watched)
    if supervisor is None:
        return SupervisionView(who=_somebody(watched), log=_unit_log(watched))
    supervise = supervisor.config.supervise
    tag = None if supervise is None else type(supervise).__struct_config__.tag
    return SupervisionView(
        by=None if tag is None else str(tag),
        who=supervisor.who,
        stage=supervisor.state.stage.value,
        waits=supervisor.before_restart,
        paused=supervisor.paused,
        restart_seconds=seconds,
        restart_source=source,
        restarts=supervisor.restarts,
        restarts_by_cause=dict(supervisor.restarts_by_cause),
        record=supervisor.record_path,
        log=_log(watched, supervise),
    )


def launch_view(watched: Watched) -> LaunchView:
    """How it was started."""
    said, supervisor = watched.description, watched.supervisor
    chosen = None if supervisor is None else supervisor.chosen_context
    return LaunchView(
        command=watched.command,
        slots=watched.slots_now(),
        cache_type_k=None if said is None else said.cache_type_k,
        cache_type_v=None if said is None else said.cache_type_v,
        trained_context=trained_tokens(watched),
        context_by_hand=chosen is not None,
        changes=tuple(_changes(watched)),
    )


def _changes(watched: Watched) -> Iterator[Change]:
    known = backends.abilities(watched.kind)
    for name in VALUES:
        now, supervisor = _value(watched, name), watched.supervisor
        if supervisor is None:
            yield Change(name, now, possible=False, how=f"moetuned only watches it; {_by_its_owner(known, name)}")
        elif supervisor.unsettable is not None:
            yield Change(name, now, possible=False, how=supervisor.unsettable)
        elif supervisor.sets(name):
            yield Change(name, now, possible=True, how=f"by a restart, {where(supervisor, name)}")
        else:
            yield Change(name, now, possible=False, how=why_not(supervisor, name))


def _by_its_owner(known: Abilities | None, name: str) -> str:
    ways = () if known is None else known.ways(name)
    return f"its owner can, by {' or '.join(way.value for way in ways)}" if ways else "nothing is known to set it"


def _value(watched: Watched, name: str) -> str | None:
    supervisor, said = watched.supervisor, watched.description
    value: int | str | None
    match name:
        case "context":
            value = watched.context_now()
        case "prompt_cache_mib":
            value = watched.prompt_cache_mib()
        case "slots":
            value = watched.slots_now()
        case "checkpoints":
            value = supervisor.state.plan.checkpoints if supervisor is not None and supervisor.sets(name) else None
        case _:
            value = None if said is None else said.cache_type_k
    return None if value is None else str(value)


def _somebody(watched: Watched) -> str:
    """Who runs what moetuned only watches, as its cgroup tells."""
    if watched.process is None:
        return "nobody that moetuned knows"
    path = watched.cgroup.directory or ""
    container = container_of(path)
    if container is not None:
        return f"somebody else, in {container}"
    unit = _unit(watched)
    return "somebody else" if unit is None else f"somebody else, in the unit {unit}"


def _unit(watched: Watched) -> str | None:
    name = "" if watched.cgroup.directory is None else cgroup_name(watched.cgroup.directory)
    return name if name.endswith(".service") else None


def _unit_log(watched: Watched) -> str | None:
    unit = _unit(watched)
    return None if unit is None or watched.process is None else f"journalctl -u {unit}"


def _log(watched: Watched, supervise: object) -> str | None:
    if not isinstance(supervise, SuperviseProcess):
        return _unit_log(watched)
    return supervise.log or "with moetuned's own: journalctl -u moetuned"
