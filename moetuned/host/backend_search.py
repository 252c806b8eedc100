"""Looks for backends on this machine: those that run, and who runs each of them, and units of systemd that would start one. Blocks a little.

What a backend is, the caller says, as in `running_backends`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence

import msgspec

from moetuned.decide.unit_command import CommandError, read_command
from moetuned.host.engine_cli import Engine
from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.host.running_backends import Finder, FoundBackend, KindOf
from moetuned.host.service import ServiceError
from moetuned.parse.process_name import unit_of
from moetuned.parse.unit_file import UnitFile, merge_service
from moetuned.schema.backend_description import BackendDescription

UNIT_DIRECTORIES = (
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""In the order in which one takes the place of another (systemd.unit(5))."""
_ENGINES = ("docker", "podman")
_MOST_UNITS = 2000
_UNIT_BYTES = 256 << 10
_FIRST_PORT, _PORTS = 8080, 100
_REAL = RealFS()


class FoundServer(msgspec.Struct, frozen=True):
    """A backend, and who runs it: a unit, a container of an engine, or nobody who could restart it. `pid` None: it does not run."""

    kind: str
    description: BackendDescription
    argv: tuple[str, ...]
    pid: int | None = None
    model_path: str | None = None
    unit: str | None = None
    container: str | None = None
    engine: str | None = None


def find_servers(
    kind_of: KindOf, fs: HostFS = _REAL, directories: Sequence[str] = UNIT_DIRECTORIES
) -> tuple[FoundServer, ...]:
    """Those that run, by pid, then units that start one and do not run, by name."""
    running = [_running(each, fs) for each in Finder(kind_of).find()]
    known = {each.unit for each in running}
    return (*_with_names(running), *(each for each in find_units(kind_of, fs, directories) if each.unit not in known))


def _running(found: FoundBackend, fs: HostFS) -> FoundServer:
    cgroup = read_or_none(fs, f"/proc/{found.identity.pid}/cgroup") or ""
    who = unit_of(cgroup) or ""
    unit = who if who.endswith(".service") and "/user@" not in cgroup else None
    words = who.split(" ")
    engine, container = (
        (words[0], words[2]) if len(words) == 3 and words[1] == "container" and words[0] in _ENGINES else (None, None)
    )
    return FoundServer(
        found.kind, found.description, found.argv, found.identity.pid, found.model_path, unit, container, engine
    )


def _with_names(running: Iterable[FoundServer]) -> tuple[FoundServer, ...]:
    """With the names of containers for the beginnings of their ids; where the engine does not say it, they are processes."""
    ids: dict[str, dict[str, str]] = {}
    found = []
    for each in running:
        if each.engine is not None and each.container is not None:
            if each.engine not in ids:
                try:
                    ids[each.engine] = Engine(each.engine).ids()
                except ServiceError:
                    ids[each.engine] = {}
            begin = each.container
            name = next((name for name, full in ids[each.engine].items() if full.startswith(begin)), None)
            each = msgspec.structs.replace(each, container=name)
        found.append(each)
    return tuple(found)


def find_units(
    kind_of: KindOf, fs: HostFS = _REAL, directories: Sequence[str] = UNIT_DIRECTORIES
) -> tuple[FoundServer, ...]:
    """Services whose own file has a command that is a backend's, templates left out. What cannot be read is none."""
    found: dict[str, FoundServer] = {}
    seen: set[str] = set()
    for directory in directories:
        for name in _names(directory):
            if name in seen:
                continue
            seen.add(name)
            text = read_or_none(fs, f"{directory}/{name}", _UNIT_BYTES)
            if text is None or "ExecStart" not in text:
                continue
            server = _of_unit(name, text, kind_of)
            if server is not None:
                found[name] = server
    return tuple(found[name] for name in sorted(found))


def _names(directory: str) -> list[str]:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [name for name in names if name.endswith(".service") and "@" not in name and name.isprintable()][
        :_MOST_UNITS
    ]


def _of_unit(name: str, text: str, kind_of: KindOf) -> FoundServer | None:
    try:
        argv = read_command(merge_service([UnitFile(name, text)])).argv
    except CommandError:
        return None
    kind = kind_of(argv)
    if kind is None:
        return None
    description = kind.describe(argv, {})
    return FoundServer(kind.NAME, description, argv, model_path=description.model_path, unit=name)


def free_port(taken: Iterable[int] = (), can_bind: Callable[[int], bool] | None = None) -> int:
    """The first port from 8080 on that nobody listens on and that is not `taken`."""
    known = set(taken)
    free = can_bind or _can_bind
    return next(
        (port for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS) if port not in known and free(port)), _FIRST_PORT
    )


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
