"""Memory of a backend's cgroup that the kernel takes last when others need room (memory.low, in bytes; cgroup v2).

Why: A browser or a build that fills memory pushes the experts out, and every token reads them again. What is protected, page
cache too, is reclaimed only when nothing unprotected is left. How much that may be depends on what else the machine is for, so no
profile sets it: `memory_low` of a backend does.

Risk: Everybody else has that much less: a desktop that no longer fits beside it swaps, or is killed.

Source: Documentation/admin-guide/cgroup-v2.rst of the kernel (memory.low); mm/page_counter.c (effective_protection: a cgroup is
protected only as far as those above it, and cgroups side by side share what the one above them has); mm/vmscan.c (shrink_one: the
multi-gen LRU); measured in a virtual machine by tests/system.

Not when: The backend is alone on the machine: with nobody to be protected from, it changes nothing. With the multi-gen LRU (odd
number in /sys/kernel/mm/lru_gen/enabled, as most distributions have it) it holds only where the backend and what pushes it out share the limit
that is reached, MemoryMax= of a slice for example: when the whole machine is short, the kernel puts the cgroup off once and then takes all
of it (seen on 6.12). What holds then: MemoryMin= of the unit and of the slices above it, which the kernel never takes (it kills programs instead:
stay well below RAM); MemoryHigh= of what pushes it out; the classic LRU for the whole machine (n in that file).

Side effect: For a unit, systemd keeps what it was told last, also when that is the value of before, in
/run/systemd/system.control/ until the next boot. The cgroups above the backend's are raised to hold what those below them ask for. What a backend leaves unused of it protects
its neighbours in the same slice where the mount has memory_recursiveprot, which is what systemd mounts.
"""

from collections.abc import Callable

import msgspec

from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import read_tunable
from moetuned.host.unified_cgroup import NO_CGROUP, UnifiedCgroup, low_is_weak, unified_cgroup, unit_of
from moetuned.schema.tunable import Bound, Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="memory_low",
    config_key="backends.memory_low",
    place=Place("/sys/fs/cgroup/*/memory.low", Codec.LIMIT),
    wanted={},
    lowest=0,
    per_device=True,
)
_FILE = "memory.low"
_PAGE_BYTES = 4096
WEAK = "with the multi-gen LRU it gives way when the whole machine is short, and holds only under a limit"


def instances(fs: HostFS, targets: Targets, _device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each cgroup that a backend's memory is to be protected in, and one for each cgroup above it."""
    asked: dict[str, int] = {}
    named: dict[str, UnifiedCgroup] = {}
    refused: list[TunableSpec] = []
    for target in targets.cgroups:
        if target.memory_low_bytes is None:
            continue
        if target.directory is None:
            skip = target.unknown or NO_CGROUP.format(target.backend)
            refused.append(_spec(target.backend, target.memory_low_bytes, skip=skip))
            continue
        cgroup = unified_cgroup(fs, target.directory)
        problem = cgroup.problem or _problem(fs, cgroup)
        if problem is not None:
            refused.append(_spec(target.directory, target.memory_low_bytes, skip=problem))
            continue
        asked[cgroup.directory] = target.memory_low_bytes // _PAGE_BYTES * _PAGE_BYTES
        named |= {each.directory: each for each in (cgroup, *cgroup.above())}
    needed = dict(asked)
    # From the bottom up: what a cgroup must allow is what those in it ask for together.
    for directory in sorted(named, key=lambda path: -len(named[path].parts)):
        needed[directory] = max(asked.get(directory, 0), _asked_below(fs, directory, needed))
    found = [
        _spec(named[directory].name, needed[directory], cgroup=named[directory], own=directory in asked, fs=fs)
        for directory in sorted(named)
    ]
    return (*found, *refused)


def _problem(fs: HostFS, cgroup: UnifiedCgroup) -> str | None:
    """Why memory.low of the cgroup, or of one above it, cannot be set."""
    for each in (cgroup, *cgroup.above()):
        if not fs.exists(f"{each.directory}/{_FILE}"):
            return f"{each.name} has no {_FILE}: the cgroup above it does not give it the memory controller"
        problem = unit_of(fs, each)[1]
        if problem is not None:
            return problem
    if fs.exists(f"{cgroup.root}/{_FILE}"):
        return f"the cgroups above {cgroup.root} are not seen from here (a container), and they limit what it protects"
    return None


def _asked_below(fs: HostFS, directory: str, needed: dict[str, int]) -> int:
    """Bytes that all cgroups directly below one ask for, those of others included. `max` names no number and does not count."""
    total = 0
    for name in fs.list_directory(directory):
        child = f"{directory}/{name}"
        if child in needed:
            total += needed[child]
        elif fs.exists(f"{child}/{_FILE}"):
            cell = read_tunable(fs, Place(f"{child}/{_FILE}", Codec.LIMIT)).cell
            total += int(cell.value) if cell is not None and cell.value != "max" else 0
    return total


def _spec(
    name: str,
    value: int,
    *,
    fs: HostFS | None = None,
    cgroup: UnifiedCgroup | None = None,
    own: bool = True,
    skip: str | None = None,
) -> TunableSpec:
    spec = msgspec.structs.replace(SPEC, name=f"{SPEC.name} {name}", asked=str(value), skip=skip)
    if fs is None or cgroup is None:
        return spec
    unit = unit_of(fs, cgroup)[0]
    place = Place(
        f"{cgroup.directory}/{_FILE}",
        Codec.LIMIT,
        unit=unit,
        unit_property=None if unit is None else "MemoryLow",
    )
    bound = Bound.SET if own else Bound.AT_LEAST
    if own:
        because = WEAK if low_is_weak(fs) else ""
    else:
        because = "the cgroups in it are protected only as far as it is"
    return msgspec.structs.replace(spec, place=place, bound=bound, because=because)
