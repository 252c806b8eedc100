"""The machine as a backend started here would find it: memory it may use, cores it may use, swap."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping

from moetuned.decide.kept_cache import kept_below, kept_on_machine
from moetuned.host.cgroup import CGROUP_ROOT, MemoryCgroup, memory_cgroup
from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.host.kept_cgroups import kept_memory
from moetuned.parse.cgroup_memory import cgroup_file_names, parse_cgroup_memory
from moetuned.parse.cpu_info import parse_cpu_features, parse_cpu_list, parse_load
from moetuned.parse.meminfo import parse_meminfo
from moetuned.schema.estimate import Amount, MachineFacts
from moetuned.schema.sample import CgroupMemory, MemInfo

_REAL = RealFS()
_NOT_READ = Amount(0, 0, "unknown: /proc/meminfo cannot be read")
_CPUS = "/sys/devices/system/cpu"
_V1_CPU_DIRECTORIES = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")


class MachineError(Exception):
    """The memory of this machine cannot be found out; the text is one sentence."""


def read_machine(pid: int, cpus: frozenset[int], fs: HostFS = _REAL, cgroup: str | None = None) -> MachineFacts:
    """The machine as process `pid`, which may run on `cpus`, sees it, or would in the directory `cgroup`.

    Raises MachineError when its RAM is not known.
    """
    meminfo = parse_meminfo(read_or_none(fs, "/proc/meminfo"))
    if meminfo is None or meminfo.total_bytes is None:
        raise MachineError("/proc/meminfo does not say how much memory there is; say it with --ram")
    limit = Amount(meminfo.total_bytes, meminfo.total_bytes, "RAM (MemTotal)")
    place = memory_cgroup(pid, fs) if cgroup is None else _at(cgroup, fs)
    # Page cache that MemAvailable counts and that nobody in this cgroup gets; what is kept in it makes way for what is in it.
    kept = kept_memory(fs, _up(place.counted_in))
    system = _taken(meminfo, kept_on_machine(kept, place.counted_in))
    swap = meminfo.swap_total_bytes or 0
    found = _cgroup_limit(place, fs)
    if found is not None:
        directory, size, memory = found
        inside = _taken_inside(memory) + kept_below(directory, kept, place.counted_in)
        free_outside = limit.low_bytes - system.low_bytes
        if size < limit.low_bytes:
            limit = Amount(size, size, f"limit of the cgroup {directory}")
            crowded = max(0, size - free_outside)  # the machine may have less free than the limit allows
            system = Amount(max(inside, crowded), max(inside, crowded), "held in it now")
    cores, cores_source = _cores(cpus, fs)
    return MachineFacts(
        limit=limit,
        system=system,
        swap=Amount(swap, swap, "SwapTotal"),
        physical_cores=cores,
        cores_source=cores_source,
        cpu_features=parse_cpu_features(read_or_none(fs, "/proc/cpuinfo")),
        load=parse_load(read_or_none(fs, "/proc/loadavg")),
    )


def own_cpus() -> frozenset[int]:
    """CPUs that this process may run on."""
    return frozenset(os.sched_getaffinity(0))


def _taken(meminfo: MemInfo, kept: int) -> Amount:
    if meminfo.total_bytes is None or meminfo.available_bytes is None:
        return _NOT_READ
    size = min(meminfo.total_bytes, max(0, meminfo.total_bytes - meminfo.available_bytes) + kept)
    return Amount(size, size, f"MemTotal - MemAvailable now{', and what memory.min keeps' if kept else ''}")


def _up(directory: str | None) -> Iterator[str]:
    """A cgroup and those above it."""
    while directory is not None and directory.startswith(f"{CGROUP_ROOT}/"):
        yield directory
        directory = directory.rpartition("/")[0]


def _at(directory: str, fs: HostFS) -> MemoryCgroup:
    return MemoryCgroup(directory, 1 if fs.exists(f"{directory}/memory.limit_in_bytes") else 2)


def _cgroup_limit(place: MemoryCgroup, fs: HostFS) -> tuple[str, int, CgroupMemory] | None:
    """The tightest limit from the process's cgroup up: its directory, bytes, and the memory counted there.

    A container that sees its own cgroup as the root still finds its limit in the root's files.
    """
    if place.version is None or place.unknown is not None:
        return None
    top = CGROUP_ROOT if place.version == 2 else f"{CGROUP_ROOT}/memory"
    directory = place.directory or top
    best: tuple[str, int, CgroupMemory] | None = None
    while directory.startswith(CGROUP_ROOT):
        files: Mapping[str, str | None] = {
            name: read_or_none(fs, f"{directory}/{name}") for name in cgroup_file_names(place.version)
        }
        memory = parse_cgroup_memory(place.version, files)
        if memory is not None:
            limits = [each for each in (memory.limit_bytes, memory.high_bytes) if each is not None]
            if limits and (best is None or min(limits) < best[1]):
                best = (directory, min(limits), memory)
        if directory == top:
            break
        directory = directory.rpartition("/")[0]
    return best


def _taken_inside(memory: CgroupMemory) -> int:
    """What cannot be reclaimed of the memory charged to a cgroup."""
    if memory.current_bytes is not None and memory.reclaimable_file_bytes is not None:
        reclaimable = memory.reclaimable_file_bytes + (memory.reclaimable_slab_bytes or 0)
        return max(0, memory.current_bytes - reclaimable)
    return memory.anonymous_bytes or 0


def _cores(cpus: frozenset[int], fs: HostFS) -> tuple[int | None, str]:
    """Physical cores among `cpus`, the fast kind where there are two, and no more than a container's CPU quota."""
    fast = parse_cpu_list(read_or_none(fs, "/sys/devices/cpu_core/cpus"))
    usable = cpus & fast if fast and cpus & fast else cpus
    siblings = {_siblings(fs, cpu) & usable for cpu in usable}
    if not siblings:
        return None, "unknown"
    cores, source = len(siblings), "physical cores" if usable == cpus else "physical performance cores"
    quota = _cpu_quota(fs)
    if quota is not None and math.ceil(quota) < cores:
        return max(1, math.ceil(quota)), f"the container's quota of {quota:g} CPUs"
    return cores, source


def _siblings(fs: HostFS, cpu: int) -> frozenset[int]:
    for name in ("core_cpus_list", "thread_siblings_list"):
        found = parse_cpu_list(read_or_none(fs, f"{_CPUS}/cpu{cpu}/topology/{name}"))
        if found is not None:
            return found
    return frozenset((cpu,))


def _cpu_quota(fs: HostFS) -> float | None:
    """CPUs' worth of time that the own container may use, from the files at the root that it sees."""
    words = (read_or_none(fs, f"{CGROUP_ROOT}/cpu.max") or "").split()
    if not words:
        for directory in _V1_CPU_DIRECTORIES:
            pair = (
                read_or_none(fs, f"{directory}/cpu.cfs_quota_us"),
                read_or_none(fs, f"{directory}/cpu.cfs_period_us"),
            )
            if pair[0] is not None and pair[1] is not None:
                words = [pair[0].strip(), pair[1].strip()]
                break
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0 and int(words[0]) > 0:
        return int(words[0]) / int(words[1])
    return None
