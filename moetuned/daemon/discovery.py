"""Finds running backends and says to which configured backend each belongs. Finding blocks a little: it runs in a worker."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from moetuned import backends
from moetuned.host import processes
from moetuned.parse.config_values import url_port
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend

FULL_SEARCH_EVERY = 6
"""Of so many searches one looks at every process, also at those that were something else before."""
LOOKS = 2


class FoundBackend(msgspec.Struct, frozen=True):
    """A running process that is a backend. `session`: its session's leader, which for a supervised backend is its child."""

    identity: processes.ProcessIdentity
    kind: str
    description: BackendDescription
    argv: tuple[str, ...]
    session: int
    model_path: str | None


class Finder:
    """Finds all running backends of a known kind, again and again. Used by one thread at a time.

    Most processes are none and never will be: what was looked at twice is left out until the next full search, so that a machine
    with many processes costs little.
    """

    def __init__(self) -> None:
        self._looks: dict[int, int] = {}
        self._searches = 0
        self._known: dict[processes.ProcessIdentity, FoundBackend] = {}

    def find(self) -> tuple[FoundBackend, ...]:
        """Those that run now, by pid."""
        if self._searches % FULL_SEARCH_EVERY == 0:
            self._looks.clear()
        self._searches += 1
        found = []
        for process in processes.find(lambda argv: backends.find(argv) is not None, self._is_none):
            self._looks.pop(process.identity.pid, None)
            known = self._known.get(process.identity)
            if known is None or known.argv != process.argv or known.model_path is None:
                known = describe(process.identity, process.argv)
            if known is not None:
                found.append(known)
        self._known = {each.identity: each for each in found}
        return tuple(found)

    def _is_none(self, pid: int) -> bool:
        """Whether `pid` was looked at often enough: a process that was just forked still has to become what it will be."""
        looks = self._looks[pid] = self._looks.get(pid, 0) + 1
        return looks > LOOKS


def describe(identity: processes.ProcessIdentity, argv: tuple[str, ...]) -> FoundBackend | None:
    """What a process is, from its command line and environment; None when it is no known backend or has ended."""
    kind = backends.find(argv)
    if kind is None:
        return None
    description = kind.describe(argv, processes.environment(identity.pid, "LLAMA_ARG_"))
    try:
        session = os.getsid(identity.pid)
    except OSError:
        return None
    return FoundBackend(
        identity=identity,
        kind=kind.NAME,
        description=description,
        argv=argv,
        session=session,
        model_path=model_path(identity.pid, description.model_path),
    )


def model_path(pid: int, said: str | None) -> str | None:
    """Where this daemon can open the process's model: as it said it, in its directory, in its container, or as it is mapped."""
    if said is not None and said.startswith("/"):
        for candidate in (said, f"/proc/{pid}/root{said}"):
            if os.path.exists(candidate):
                return candidate
    elif said is not None and os.path.exists(f"/proc/{pid}/cwd/{said}"):
        return os.path.realpath(f"/proc/{pid}/cwd/{said}")
    return next((mapped for mapped in processes.mapped_models(pid) if os.path.exists(mapped)), None)


def belongs_to(config: Backend, found: FoundBackend) -> bool:
    """Whether a found process is the backend that the config names: by port, else by model, else by kind."""
    if config.kind is not None and config.kind != found.kind:
        return False
    if config.url is not None:
        return found.description.url is not None and url_port(config.url) == url_port(found.description.url)
    if config.model is not None:
        return found.model_path is not None and os.path.realpath(config.model) == os.path.realpath(found.model_path)
    return config.kind is not None


def name_for(found: FoundBackend, taken: Sequence[str]) -> str:
    """A name for a backend nobody named: its kind and port, or its pid where that is taken or unknown."""
    url = found.description.url
    name = f"{found.kind}-{url_port(url)}" if url is not None else f"{found.kind}-pid{found.identity.pid}"
    return f"{found.kind}-pid{found.identity.pid}" if name in taken else name
