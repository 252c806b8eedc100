"""From raw text to a `Sample`, and which files a sampler must read for it.

The daemon's tick, `record` and `replay` all go through here, so that a recorded trace exercises the same parsers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse.backend_http import parse_backend_http
from moetuned.parse.cgroup_memory import (
    KEPT_FILES,
    above_file_names,
    cgroup_file_names,
    parse_cgroup_memory,
    parse_kept_memory,
)
from moetuned.parse.disk_stat import parse_disk_stat
from moetuned.parse.meminfo import parse_meminfo
from moetuned.parse.pressure import parse_pressure
from moetuned.parse.process import ENDED_STATES, parse_process
from moetuned.parse.vmstat import parse_vmstat
from moetuned.schema.sample import (
    BackendIdentity,
    BackendSample,
    CgroupAbove,
    CgroupMemory,
    DiskCounters,
    KeptMemory,
    MachineSample,
    RawBackend,
    RawResidency,
    RawSample,
    Residency,
    Sample,
)

_MEMINFO, _VMSTAT = "/proc/meminfo", "/proc/vmstat"
_PRESSURE_MEMORY, _PRESSURE_IO = "/proc/pressure/memory", "/proc/pressure/io"
_NOTHING = RawBackend()
_Cgroups = dict[tuple[str, int], CgroupMemory | None]


def machine_paths() -> tuple[str, ...]:
    """Files about the whole machine."""
    return (_MEMINFO, _VMSTAT, _PRESSURE_MEMORY, _PRESSURE_IO)


def backend_paths(identity: BackendIdentity) -> tuple[str, ...]:
    """Files about one backend: its process, its cgroup and those above with a limit, those that are kept, the disks under its model."""
    process = () if identity.pid is None else tuple(f"/proc/{identity.pid}/{name}" for name in ("stat", "status", "io"))
    cgroup = (
        ()
        if identity.cgroup_directory is None or identity.cgroup_version is None
        else tuple(f"{identity.cgroup_directory}/{name}" for name in cgroup_file_names(identity.cgroup_version))
    )
    above = (
        ()
        if identity.cgroup_version is None
        else tuple(
            f"{one}/{name}" for one in identity.limited_above for name in above_file_names(identity.cgroup_version)
        )
    )
    kept = (f"{one.directory}/{name}" for one in identity.kept for name in KEPT_FILES)
    return (*process, *cgroup, *above, *kept, *(_disk_path(disk) for disk in identity.disks))


def assemble(raw: RawSample, identities: Sequence[BackendIdentity]) -> Sample:
    """Parse one moment. Text that is missing, cut or hostile gives None for its fields, never an exception."""
    disks = {disk: None for identity in identities for disk in identity.disks}
    counters: dict[str, DiskCounters] = {}
    for disk in disks:
        parsed = parse_disk_stat(raw.files.get(_disk_path(disk)))
        if parsed is not None:
            counters[disk] = parsed
    cgroups: _Cgroups = {}
    return Sample(
        at_seconds=raw.t,
        wall_seconds=raw.wall,
        machine=MachineSample(
            meminfo=parse_meminfo(raw.files.get(_MEMINFO)),
            vmstat=parse_vmstat(raw.files.get(_VMSTAT)),
            pressure_memory=parse_pressure(raw.files.get(_PRESSURE_MEMORY)),
            pressure_io=parse_pressure(raw.files.get(_PRESSURE_IO)),
            disks=counters,
            kept=_kept(raw.files, identities),
        ),
        backends=tuple(_backend(raw, identity, cgroups) for identity in identities),
    )


def _disk_path(disk: str) -> str:
    return f"/sys/block/{disk}/stat"


def _backend(raw: RawSample, identity: BackendIdentity, cgroups: _Cgroups) -> BackendSample:
    rest = raw.backends.get(identity.name, _NOTHING)
    process, gone = None, identity.pid is None
    if identity.pid is not None:
        stat = raw.files.get(f"/proc/{identity.pid}/stat")
        process = parse_process(
            identity.pid, stat, raw.files.get(f"/proc/{identity.pid}/status"), raw.files.get(f"/proc/{identity.pid}/io")
        )
        # /proc/<pid>/stat is readable by everybody: one that was looked for and could not be read has ended.
        gone = stat is None and f"/proc/{identity.pid}/stat" in raw.files
        if process is not None and process.state in ENDED_STATES:
            process, gone = None, True
    return BackendSample(
        name=identity.name,
        process=process,
        process_gone=gone,
        cgroup=_cgroup(raw.files, identity, cgroups),
        http=parse_backend_http(rest.http, identity.dialect, identity.numbers),
        residency=_residency(rest.residency, identity.page_bytes),
        cgroup_directory=identity.cgroup_directory,
        above=_above(raw.files, identity),
    )


def _cgroup(files: Mapping[str, str | None], identity: BackendIdentity, known: _Cgroups) -> CgroupMemory | None:
    """Of one that several backends are in (a login session, a container) the files are parsed once."""
    directory, version = identity.cgroup_directory, identity.cgroup_version
    if directory is None or version is None:
        return None
    place = (directory, version)
    if place not in known:
        names = cgroup_file_names(version)
        known[place] = parse_cgroup_memory(version, {name: files.get(f"{directory}/{name}") for name in names})
    return known[place]


def _kept(files: Mapping[str, str | None], identities: Sequence[BackendIdentity]) -> tuple[KeptMemory, ...]:
    if not any(identity.kept for identity in identities):
        return ()
    found = (
        parse_kept_memory(one, {name: files.get(f"{one.directory}/{name}") for name in KEPT_FILES})
        for one in dict.fromkeys(each for identity in identities for each in identity.kept)
    )
    return tuple(one for one in found if one is not None)


def _above(files: Mapping[str, str | None], identity: BackendIdentity) -> tuple[CgroupAbove, ...]:
    version, found = identity.cgroup_version, []
    for directory in identity.limited_above if version is not None else ():
        assert version is not None
        texts = {name: files.get(f"{directory}/{name}") for name in above_file_names(version)}
        memory = parse_cgroup_memory(version, texts)
        if memory is not None:
            found.append(CgroupAbove(directory, memory))
    return tuple(found)


def _residency(raw: RawResidency | None, page_bytes: int) -> Residency | None:
    if raw is None:
        return None
    return Residency(
        resident_bytes=raw.cached * page_bytes,
        expert_bytes=None if raw.expert_cached is None else raw.expert_cached * page_bytes,
        other_bytes=None if raw.other_cached is None else raw.other_cached * page_bytes,
    )
