"""Finds running backends and says to which configured backend each belongs. Finding blocks a little.

What a backend is, the caller says (`KindOf`, most often `backends.find`): the plug-ins lie above this layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from moetuned.host import listening, processes
from moetuned.host.fs import RealFS, read_or_none
from moetuned.host.process_place import path_here, url_here
from moetuned.parse.config_values import url_port
from moetuned.parse.generic_process import is_of
from moetuned.parse.process_name import services_of
from moetuned.schema.backend_abilities import Abilities, Dialect
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend

FULL_SEARCH_EVERY = 6
"""Of so many searches one looks at every process, also at those that were something else before."""
LOOKS = 2
_REAL = RealFS()
_MOST_ABOVE = 16


class Kind(Protocol):
    """A kind of backend, as far as finding one needs it."""

    @property
    def NAME(self) -> str:  # noqa: N802
        """Its name."""
        ...

    @property
    def ABILITIES(self) -> Abilities:  # noqa: N802
        """What it can do."""
        ...

    @property
    def VARIABLES(self) -> tuple[str, ...]:  # noqa: N802
        """The variables that `describe` needs."""
        ...

    def describe(self, argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
        """What its command line and the variables of `VARIABLES` say."""
        ...


KindOf = Callable[[Sequence[str]], Kind | None]
"""The kind that a command line is of; None: it is no backend."""


class FoundBackend(msgspec.Struct, frozen=True):
    """A running process that is a backend. `session`: its session's leader, which for a supervised backend is its child."""

    identity: processes.ProcessIdentity
    kind: str
    description: BackendDescription
    argv: tuple[str, ...]
    session: int
    model_path: str | None
    said_url: str | None = None
    """Its address as its command line says it, which is another network's in a container."""
    displaced_by: int | None = None
    """The process that listens on its port now while it does not itself; None: none is known."""
    above: tuple[int, ...] = ()
    """Its parent, the parent's parent and so on when it was found."""
    front: processes.ProcessIdentity | None = None
    """The process that only stands before this one: it takes the requests, or started it, and holds no model."""
    services: frozenset[str] = frozenset()
    """The units of systemd that its cgroup was in or below when it was found."""


class Finder:
    """Finds all running backends of a known kind, again and again. Used by one thread at a time.

    Most processes are none and never will be: what was looked at twice is left out until the next full search, so that a machine
    with many processes costs little.
    """

    def __init__(self, kind_of: KindOf) -> None:
        self._kind_of = kind_of
        self._looks: dict[int, int] = {}
        self._searches = 0
        self._known: dict[processes.ProcessIdentity, FoundBackend] = {}

    def find(self) -> tuple[FoundBackend, ...]:
        """Those that run now, by pid."""
        if self._searches % FULL_SEARCH_EVERY == 0:
            self._looks.clear()
        self._searches += 1
        found = []
        for process in processes.find(lambda argv: self._kind_of(argv) is not None, self._is_none):
            self._looks.pop(process.identity.pid, None)
            known = self._known.get(process.identity)
            if known is None or known.argv != process.argv or known.model_path is None:
                known = describe(process.identity, process.argv, self._kind_of)
            if known is not None:
                found.append(known)
        self._known = {each.identity: each for each in found}
        return displaced(self._without_fronts(found))

    def _without_fronts(self, found: Sequence[FoundBackend]) -> tuple[FoundBackend, ...]:
        """Without processes whose child, of the same kind, holds the model (`Abilities.child_holds_model`)."""
        by_pid = {each.identity.pid: each for each in found}
        front_of: dict[int, FoundBackend] = {}
        for each in found:
            kind = self._kind_of(each.argv)
            if kind is None or not kind.ABILITIES.child_holds_model:
                continue
            above = by_pid.get(processes.parent(each.identity.pid) or 0)
            if above is not None and above.kind == each.kind:
                front_of[each.identity.pid] = above
        fronts = {front.identity for front in front_of.values()}
        return tuple(
            each if each.identity.pid not in front_of else _behind(each, front_of[each.identity.pid])
            for each in found
            if each.identity not in fronts
        )

    def _is_none(self, pid: int) -> bool:
        """Whether `pid` was looked at often enough: a process that was just forked still has to become what it will be."""
        looks = self._looks[pid] = self._looks.get(pid, 0) + 1
        return looks > LOOKS


Listens = Callable[[int, int], bool | None]
"""Whether a process listens on a port itself; None: not known."""


def displaced(found: Sequence[FoundBackend], listens: Listens = listening.listens) -> tuple[FoundBackend, ...]:
    """`found`, without the address of those that no longer listen on their port while another one of them does.

    One that hangs in its end and the next one on its port: both would be asked there, and the wrong one be told to answer. Processes of
    one session are a server and its launcher; who cannot be looked at keeps its address. Looks at nothing while no two share a port.
    """
    ports: dict[int, list[FoundBackend]] = {}
    for each in found:
        if each.said_url is not None:
            ports.setdefault(url_port(each.said_url), []).append(each)
    by: dict[processes.ProcessIdentity, int] = {}
    for port, several in ports.items():
        if len(several) < 2:
            continue
        answers = [(each, listens(each.identity.pid, port)) for each in several]
        owner = next((each for each, answer in answers if answer), None)
        if owner is not None:
            by |= {
                each.identity: owner.identity.pid
                for each, answer in answers
                if answer is False and each.session != owner.session
            }
    return tuple(_without_address(each, by[each.identity]) if each.identity in by else each for each in found)


def _without_address(found: FoundBackend, by: int) -> FoundBackend:
    unknown = f"it no longer listens on its port, where process {by} does"
    description = msgspec.structs.replace(found.description, url=None, url_unknown=unknown)
    return msgspec.structs.replace(found, description=description, displaced_by=by)


def _behind(found: FoundBackend, front: FoundBackend) -> FoundBackend:
    return msgspec.structs.replace(found, front=front.identity)


def describe(identity: processes.ProcessIdentity, argv: tuple[str, ...], kind_of: KindOf) -> FoundBackend | None:
    """What a process is, from its command line and environment; None when it is no known backend or has ended."""
    kind = kind_of(argv)
    if kind is None:
        return None
    description = kind.describe(argv, processes.variables(identity.pid, kind.VARIABLES))
    try:
        session = os.getsid(identity.pid)
    except OSError:
        return None
    return FoundBackend(
        identity=identity,
        kind=kind.NAME,
        description=_reached(identity.pid, description),
        argv=argv,
        session=session,
        above=_above(identity.pid),
        said_url=description.url,
        model_path=model_path(identity.pid, description.model_path),
        services=services_of(read_or_none(_REAL, f"/proc/{identity.pid}/cgroup") or ""),
    )


def _above(pid: int) -> tuple[int, ...]:
    found: list[int] = []
    while len(found) < _MOST_ABOVE and (above := processes.parent(found[-1] if found else pid)) and above > 1:
        found.append(above)
    return tuple(found)


def _reached(pid: int, description: BackendDescription) -> BackendDescription:
    """With its address as it is reached from here: a container's loopback is not this machine's."""
    port = None if description.url is None else url_port(description.url)
    if description.url is None or port is None:
        return description
    url, unknown = url_here(pid, description.url, port)
    return description if url == description.url else msgspec.structs.replace(description, url=url, url_unknown=unknown)


def model_path(pid: int, said: str | None) -> str | None:
    """Where this program can open the process's model: as it said it, in its directory, in its container, or as it is mapped."""
    names = (*(() if said is None else (said,)), *processes.mapped_models(pid))
    return next((path for name in names if (path := path_here(pid, name)) is not None), None)


def belongs_to(config: Backend, found: FoundBackend) -> bool:
    """Whether a found process is the backend that the config names: by port, else by model, else by kind.

    One of kind generic is known by the expression of its entry alone.
    """
    if config.kind is not None and config.kind != found.kind:
        return False
    if config.generic is not None:
        return is_of(config.generic, found.argv)
    if config.url is not None:
        known = (found.description.url or found.said_url, found.description.front_url)
        return any(url is not None and url_port(config.url) == url_port(url) for url in known)
    if config.model is not None:
        return found.model_path is not None and os.path.realpath(config.model) == os.path.realpath(found.model_path)
    return config.kind is not None


def address_of(description: BackendDescription, configured: str | None) -> str | None:
    """Where it is asked: where the config says, but a process behind another one at its own address."""
    behind = description.front_url is not None and description.dialect is not Dialect.OLLAMA
    return description.url if configured is None or behind else configured


def name_for(found: FoundBackend, taken: Sequence[str]) -> str:
    """A name for a backend nobody named: its kind and port, or its pid where that is taken or unknown."""
    url = found.description.front_url or found.description.url
    name = f"{found.kind}-{url_port(url)}" if url is not None else f"{found.kind}-pid{found.identity.pid}"
    return f"{found.kind}-pid{found.identity.pid}" if name in taken else name
