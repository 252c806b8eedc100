"""Memory that is protected for backends' cgroups (memory.low, memory.min): what each of them, and each cgroup above, must be given.

A cgroup is protected only as far as those above it, and cgroups side by side share what the one above them has
(effective_protection in mm/page_counter.c): each must have at least what those in it ask for together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import read_tunable
from moetuned.host.unified_cgroup import NO_CGROUP, UnifiedCgroup, unified_cgroup, unit_of
from moetuned.schema.tunable import Bound, CgroupTarget, Codec, Place, Targets, TunableSpec

_PAGE_BYTES = 4096
NO_NUMBER = "max"
_ABOVE = "the cgroups in it are protected only as far as it is"


class Asked(msgspec.Struct, frozen=True):
    """What is asked for, before it is decided whether it may be.

    `own`: bytes by directory of a backend's cgroup. `cgroups`: these and all above them. `needed`: bytes that each of those must have.
    `later_bytes`: what backends ask whose cgroup is not known (yet). `originals`: as in `Targets`.
    """

    file: str
    own: Mapping[str, int]
    cgroups: Mapping[str, UnifiedCgroup]
    needed: Mapping[str, int]
    later_bytes: int
    originals: Mapping[str, str]

    def standing(self, fs: HostFS, directory: str) -> str:
        """What a cgroup has without what is ours: a number, or `max`; 0 where it is no cgroup or cannot be read."""
        path = f"{directory}/{self.file}"
        if path in self.originals:
            return self.originals[path]
        cell = read_tunable(fs, Place(path, Codec.LIMIT)).cell if fs.exists(path) else None
        return "0" if cell is None else cell.value


def protection_settings(
    fs: HostFS,
    targets: Targets,
    spec: TunableSpec,
    unit_property: str,
    asked_of: Callable[[CgroupTarget], int | None],
    *,
    because: str = "",
    refuse: Callable[[HostFS, Asked], Mapping[str, str]] | None = None,
) -> tuple[TunableSpec, ...]:
    """One setting for each cgroup that a backend's memory is to be protected in, and one for each cgroup above it.

    `spec` describes them; `unit_property` is what systemd calls it; `because` is said of each backend's own. `refuse` says of which
    directories of `Asked.own` nothing is set, and why. Values are whole pages, as the kernel rounds them (page_counter_memparse).
    """
    file = spec.place.path.rpartition("/")[2]
    own: dict[str, int] = {}
    cgroups: dict[str, UnifiedCgroup] = {}
    refused: list[TunableSpec] = []
    later = 0
    for target in targets.cgroups:
        size = asked_of(target)
        if size is None:
            continue
        size = size // _PAGE_BYTES * _PAGE_BYTES
        if target.directory is None:
            later += size
            refused.append(_refused(spec, target.backend, size, target.unknown or NO_CGROUP.format(target.backend)))
            continue
        cgroup = unified_cgroup(fs, target.directory)
        problem = cgroup.problem or _problem(fs, cgroup, file)
        if problem is not None:
            refused.append(_refused(spec, target.directory, size, problem))
            continue
        own[cgroup.directory] = size
        cgroups |= {each.directory: each for each in (cgroup, *cgroup.above())}
    asked = _asked(fs, file, own, cgroups, later, targets.originals)
    against = refuse(fs, asked) if refuse is not None else {}
    if against:
        refused += [_refused(spec, cgroups[each].name, own[each], why) for each, why in against.items()]
        kept = {each: size for each, size in own.items() if each not in against}
        left = {path: each for path, each in cgroups.items() if any(_is_in(one, path) for one in kept)}
        asked = _asked(fs, file, kept, left, later, targets.originals)
    found = (_setting(fs, spec, unit_property, asked, directory, because) for directory in sorted(asked.cgroups))
    return (*found, *refused)


def _asked(
    fs: HostFS,
    file: str,
    own: Mapping[str, int],
    cgroups: Mapping[str, UnifiedCgroup],
    later: int,
    originals: Mapping[str, str],
) -> Asked:
    needed: dict[str, int] = {}
    asked = Asked(file, own, cgroups, needed, later, originals)
    # From the bottom up: what a cgroup must allow is what those in it ask for together.
    for directory in sorted(cgroups, key=lambda path: -len(cgroups[path].parts)):
        needed[directory] = max(own.get(directory, 0), _asked_below(fs, asked, directory))
    return asked


def _asked_below(fs: HostFS, asked: Asked, directory: str) -> int:
    """Bytes that all cgroups directly below one ask for, those of others included. `max` names no number and does not count."""
    total = 0
    for name in fs.list_directory(directory):
        child = f"{directory}/{name}"
        if child in asked.needed:
            total += asked.needed[child]
            continue
        value = asked.standing(fs, child)
        total += 0 if value == NO_NUMBER else int(value)
    return total


def _is_in(directory: str, above: str) -> bool:
    return directory == above or directory.startswith(f"{above}/")


def _problem(fs: HostFS, cgroup: UnifiedCgroup, file: str) -> str | None:
    """Why the file of the cgroup, or of one above it, cannot be set."""
    for each in (cgroup, *cgroup.above()):
        if not fs.exists(f"{each.directory}/{file}"):
            return f"{each.name} has no {file}: the cgroup above it does not give it the memory controller"
        problem = unit_of(fs, each)[1]
        if problem is not None:
            return problem
    if fs.exists(f"{cgroup.root}/{file}"):
        return f"the cgroups above {cgroup.root} are not seen from here (a container), and they limit what it protects"
    return None


def _refused(spec: TunableSpec, name: str, size: int, why: str) -> TunableSpec:
    return msgspec.structs.replace(spec, name=f"{spec.name} {name}", asked=str(size), skip=why)


def _setting(
    fs: HostFS, spec: TunableSpec, unit_property: str, asked: Asked, directory: str, because: str
) -> TunableSpec:
    cgroup = asked.cgroups[directory]
    own = directory in asked.own
    unit = unit_of(fs, cgroup)[0]
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name} {cgroup.name}",
        asked=str(asked.needed[directory]),
        place=Place(
            f"{directory}/{asked.file}",
            Codec.LIMIT,
            unit=unit,
            unit_property=None if unit is None else unit_property,
        ),
        bound=Bound.SET if own else Bound.AT_LEAST,
        because=because if own else _ABOVE,
    )
