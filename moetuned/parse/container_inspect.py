"""Reads what `docker inspect --type container` and `podman inspect --type container` print: a list of objects of JSON.

Checked against docker 20.10 (API 1.41) and podman 4.3. Both print a State.Pid of 0 and times in the year 1 where there is none; docker
puts a slash before the name; podman 4.4 and later tells State.StoppedByUser.
"""

from __future__ import annotations

import re

import msgspec

from moetuned.schema.container import TOKEN_LABEL, ContainerFacts

_ID = re.compile(r"[0-9a-f]{12,64}")
_MOST_PID = 1 << 22
"""PID_MAX_LIMIT of include/linux/threads.h."""


class _State(msgspec.Struct):
    status: str = msgspec.field(name="Status")
    running: bool = msgspec.field(name="Running", default=False)
    restarting: bool = msgspec.field(name="Restarting", default=False)
    oom_killed: bool = msgspec.field(name="OOMKilled", default=False)
    pid: int = msgspec.field(name="Pid", default=0)
    exit_code: int | None = msgspec.field(name="ExitCode", default=None)
    stopped_by_user: bool | None = msgspec.field(name="StoppedByUser", default=None)


class _Policy(msgspec.Struct):
    name: str = msgspec.field(name="Name", default="")
    most: int = msgspec.field(name="MaximumRetryCount", default=0)


class _HostConfig(msgspec.Struct):
    policy: _Policy | None = msgspec.field(name="RestartPolicy", default=None)
    auto_remove: bool = msgspec.field(name="AutoRemove", default=False)


class _Config(msgspec.Struct):
    labels: dict[str, str] | None = msgspec.field(name="Labels", default=None)


class _Container(msgspec.Struct):
    id: str = msgspec.field(name="Id")
    name: str = msgspec.field(name="Name")
    state: _State = msgspec.field(name="State")
    host: _HostConfig | None = msgspec.field(name="HostConfig", default=None)
    config: _Config | None = msgspec.field(name="Config", default=None)


def parse_containers(text: bytes) -> tuple[ContainerFacts, ...]:
    """The containers in the order in which they were asked for. Raises ValueError for what is no such list."""
    try:
        found = msgspec.json.decode(text, type=list[_Container])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"what inspect printed is not understood: {error}") from error
    return tuple(_facts(one) for one in found)


def _facts(one: _Container) -> ContainerFacts:
    if not _ID.fullmatch(one.id):
        raise ValueError("what inspect printed is not understood: Id is no container's id")
    state, policy = one.state, None if one.host is None else one.host.policy
    # A pid of 1 would be this machine's init, or mean another pid namespace.
    runs = (state.running or state.status == "paused") and not state.restarting and 1 < state.pid <= _MOST_PID
    return ContainerFacts(
        id=one.id,
        name=one.name.removeprefix("/"),
        status="restarting" if state.restarting else state.status,
        pid=state.pid if runs else None,
        exit_code=state.exit_code,
        oom_killed=state.oom_killed,
        policy=_policy(policy),
        removed_at_end=one.host is not None and one.host.auto_remove,
        stopped_by_user=state.stopped_by_user,
        token=None if one.config is None else (one.config.labels or {}).get(TOKEN_LABEL),
    )


def _policy(policy: _Policy | None) -> str:
    if policy is None or policy.name in ("", "no"):
        return "no"
    return f"{policy.name}:{policy.most}" if policy.name == "on-failure" and policy.most > 0 else policy.name


def parse_names(text: str) -> dict[str, str]:
    """Ids by name, of lines "ID NAME[,NAME]" (`ps --no-trunc --format '{{.ID}} {{.Names}}'`); what is no such line is left out."""
    found = {}
    for line in text.splitlines():
        identity, blank, names = line.strip().partition(" ")
        if blank and _ID.fullmatch(identity):
            found.update(dict.fromkeys((name for name in names.strip().split(",") if name), identity))
    return found
