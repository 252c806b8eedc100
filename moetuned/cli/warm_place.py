"""Where the pages of a model that is warmed by hand are charged: in the cgroup of a backend that maps it, or in the caller's own.

Page cache belongs to the cgroup that touches a page first. Charged to the wrong one, it counts against the wrong limit, and is
reclaimed when that one is full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec

from moetuned import backends
from moetuned.decide.memory_headroom import memory_view
from moetuned.host.cgroup import CGROUP_ROOT, check_directory, memory_cgroup
from moetuned.host.clock import RealClock
from moetuned.host.processes import command_line
from moetuned.host.read_ahead_measure import mapped_by
from moetuned.host.sampler import Sampler
from moetuned.parse.assemble import assemble
from moetuned.schema.sample import BackendIdentity, BackendSample, MachineSample
from moetuned.schema.snapshot import MemoryView


class MappedBy(msgspec.Struct, frozen=True):
    """A process that has the model mapped; `kind` is of a backend that is known, else None."""

    pid: int
    name: str
    kind: str | None


class Place(msgspec.Struct, frozen=True):
    """`join`: the cgroup that the warming process enters, None: it stays in the caller's. `charged`: where its pages are charged,
    None: to no cgroup below the root. `said`: the same in one sentence; `version` of the hierarchy.
    """

    join: str | None
    charged: str | None
    version: int | None
    said: str


class PlaceError(Exception):
    """There can be no warming in the cgroup that was asked for; the text is one sentence. `refused`: this user may not."""

    def __init__(self, sentence: str, *, refused: bool = False) -> None:
        super().__init__(sentence)
        self.refused = refused


def users_of(paths: Sequence[str]) -> tuple[MappedBy, ...]:
    """Processes that have one of the files mapped, backends first. Without root only the caller's own are seen."""
    found = []
    for pid in mapped_by(paths):
        argv = command_line(pid)
        if argv:
            kind = backends.find(argv)
            name = os.path.basename(argv[0]) if kind is None else kind.NAME
            found.append(MappedBy(pid, name, None if kind is None else kind.NAME))
    return tuple(sorted(found, key=lambda one: (one.kind is None, one.pid)))


def find_place(users: Sequence[MappedBy], asked: str | None = None) -> Place:
    """The cgroup `asked` for, else that of the first backend among `users`, else the caller's own. Raises PlaceError."""
    if asked is not None:
        return _asked_for(asked)
    own = memory_cgroup(os.getpid())
    here = Place(
        None, own.directory, own.version, f"charged to {own.directory or 'no cgroup'}, where this command runs"
    )
    user = next((one for one in users if one.kind is not None), None)
    if user is None:
        return here
    theirs, whose = memory_cgroup(user.pid), f"{user.name} (pid {user.pid})"
    if theirs.unknown is not None:
        return msgspec.structs.replace(here, said=f"{here.said}, because that of {whose} is unknown: {theirs.unknown}")
    if theirs.directory == own.directory:
        return msgspec.structs.replace(here, said=f"charged to {own.directory or 'no cgroup'}, as those of {whose} are")
    if theirs.directory is None:
        return msgspec.structs.replace(here, said=f"{here.said}; {whose} is in no cgroup")
    if os.geteuid() != 0:
        said = f"{here.said}; only root may charge them to {theirs.directory}, the cgroup of {whose}"
        return msgspec.structs.replace(here, said=said)
    return Place(
        theirs.directory, theirs.directory, theirs.version, f"charged to {theirs.directory}, the cgroup of {whose}"
    )


def _asked_for(directory: str) -> Place:
    wrong = check_directory(directory)
    if wrong is not None:
        raise PlaceError(f"--cgroup: {wrong}")
    real = os.path.realpath(directory)
    if not os.access(f"{real}/cgroup.procs", os.W_OK, effective_ids=True):
        raise PlaceError(f"--cgroup: you may not put a process into {real}; run this with sudo", refused=True)
    version = 2 if os.path.exists(f"{real}/memory.current") else 1
    return Place(real, real, version, f"charged to {real}")


def limits_at(place: Place) -> tuple[MemoryView, ...]:
    """Memory against the machine's limit, and against that of each cgroup from where pages are charged upwards.

    `scope` names the cgroup's directory. What has no limit, or cannot be read, is unknown.
    """
    directories = list(_upwards(place.charged))
    identities = [BackendIdentity(name=one, cgroup_directory=one, cgroup_version=place.version) for one in directories]
    sampler = Sampler(RealClock())
    try:
        sample = assemble(sampler.read(identities, {}), identities)
    finally:
        sampler.close()
    machine = memory_view(sample.machine, BackendSample("machine"))
    inside = [memory_view(MachineSample(), one) for one in sample.backends]
    return (machine, *(msgspec.structs.replace(one, scope=name) for one, name in zip(inside, directories, strict=True)))


def _upwards(directory: str | None) -> Iterator[str]:
    """A cgroup and those above it, without the root."""
    while (
        directory is not None
        and directory.startswith(CGROUP_ROOT + "/")
        and os.path.exists(f"{directory}/cgroup.procs")
    ):
        yield directory
        directory = os.path.dirname(directory)
