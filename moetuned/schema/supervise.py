"""The configuration's ways of supervising a backend, part of `schema.config`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moetuned.schema.config_types import Duration, Size


class ResourceLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the backend's process (setrlimit(2)), for it and what it starts."""

    memlock: Annotated[
        Size | Literal["unlimited"] | None,
        Meta(description="Memory it may lock (RLIMIT_MEMLOCK), for llama-server --mlock; unset: as the daemon."),
    ] = None
    open_files: Annotated[
        Annotated[int, Meta(ge=64, le=1 << 20)] | None,
        Meta(description="Files it may have open (RLIMIT_NOFILE), for models of many parts; unset: as the daemon."),
    ] = None
    core: Annotated[
        Size | Literal["unlimited"] | None,
        Meta(
            description="Size of its core dump (RLIMIT_CORE). 0: none, so that a crash does not write gigabytes to the disk; "
            "unset: as the daemon."
        ),
    ] = None


class SuperviseProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="process"):
    """moetuned starts the backend as its child and restarts it."""

    command: Annotated[
        list[str],
        Meta(
            min_length=1,
            description="Program and arguments, not given to a shell. {model}, {context}, {prompt_cache_mib}, {slots}, {checkpoints} and "
            "{cache_type} are replaced; what relief may change must occur, {context} for a shorter context to be possible. A flag "
            "with one of the last three that a llama.cpp program does not know is left out.",
        ),
    ]
    environment: Annotated[dict[str, str], Meta(description="Added to the daemon's environment.")] = {}
    directory: Annotated[str | None, Meta(description="Working directory; unset: /.")] = None
    cgroup: Annotated[
        str | None,
        Meta(description="An existing memory cgroup to start it in, as an absolute directory under /sys/fs/cgroup."),
    ] = None
    scope: Annotated[
        bool,
        Meta(
            description="Where systemd runs and no cgroup is given, start it in a scope of its own (moetuned-backend-NAME.scope), its output "
            "in the journal as moetuned-NAME; false: in the daemon's cgroup, with the daemon's output."
        ),
    ] = True
    log: Annotated[
        str | None, Meta(description="File for its output, appended; unset: the journal, or the daemon's own output.")
    ] = None
    limits: Annotated[ResourceLimits, Meta(description="Limits of its process.")] = ResourceLimits()


class SuperviseUnit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="systemd"):
    """A unit of systemd starts the backend; moetuned has it restarted through systemd."""

    unit: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,200}\.service$",
            description="The unit, e.g. llama.service. What relief may change has to come from the file that moetunectl backend adopt "
            "puts into it.",
            extra={"allowed": "must be the name of a service, e.g. llama.service or llama@glm.service"},
        ),
    ]


class SuperviseContainer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="docker"):
    """A container of Docker or Podman; moetuned makes it anew to change what it is started with."""

    container: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
            description="Name of the container.",
            extra={"allowed": "must be the name of a container: letters, digits and _.-, e.g. llama"},
        ),
    ]
    run: Annotated[
        list[str],
        Meta(
            min_length=1,
            description="What follows docker run --detach --name CONTAINER: options, image and arguments, with the placeholders of "
            "by: process.",
        ),
    ]
    engine: Annotated[Literal["docker", "podman"], Meta(description="The program that runs it.")] = "docker"


class SuperviseCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="command"):
    """A program of yours restarts the backend."""

    restart: Annotated[
        list[str],
        Meta(
            min_length=1,
            description="Program and arguments, not given to a shell, with the placeholders of by: process; the values are also in its "
            "environment (MOETUNED_CONTEXT and so on). It belongs to root and nobody else may write it; it ends with 0 once the "
            "backend is started again.",
        ),
    ]
    timeout: Annotated[Duration, Meta(description="It is ended when it takes longer.")] = "60s"


class SuperviseNone(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="none"):
    """moetuned only watches a backend that somebody else starts."""


Supervise = SuperviseProcess | SuperviseUnit | SuperviseContainer | SuperviseCommand | SuperviseNone
