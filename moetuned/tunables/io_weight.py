"""Share of the disk that a backend's cgroup gets beside the cgroups next to it, which have 100 (io.weight, 1 to 10000; cgroup v2).

Why: Every token of a model larger than memory waits for reads; a backup or a download at the same disk makes it wait longer. Who shall
wait is for people to say, so no profile sets it: `io_weight` of a backend does.

Risk: Others wait for the disk instead, by as much.

Source: Documentation/admin-guide/cgroup-v2.rst of the kernel (io.weight, io.cost.qos); Documentation/block/bfq-iosched.rst.

Not when: The disk's scheduler is not bfq and io.cost.qos of the root cgroup does not enable it: no weight counts then. Bfq has a
file of its own (io.bfq.weight), which systemd writes along for its units; for other cgroups only io.cost.qos makes it count.
"""

from collections.abc import Callable

import msgspec

from moetuned.host.fs import HostFS
from moetuned.host.unified_cgroup import NO_CGROUP, UnifiedCgroup, unified_cgroup, unit_of
from moetuned.schema.tunable import Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="io_weight",
    config_key="backends.io_weight",
    place=Place("/sys/fs/cgroup/*/io.weight", Codec.WEIGHT),
    wanted={},
    lowest=1,
    highest=10000,
    per_device=True,
)
_FILE = "io.weight"


def instances(fs: HostFS, targets: Targets, _device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each backend's cgroup that has a weight in the configuration."""
    found: dict[str, TunableSpec] = {}
    for target in targets.cgroups:
        if target.io_weight is None:
            continue
        if target.directory is None:
            name, skip = target.backend, target.unknown or NO_CGROUP.format(target.backend)
            spec = msgspec.structs.replace(SPEC, name=f"{SPEC.name} {name}", asked=str(target.io_weight), skip=skip)
            found[name] = spec
            continue
        cgroup = unified_cgroup(fs, target.directory)
        unit, problem = unit_of(fs, cgroup)
        problem = cgroup.problem or problem or _problem(fs, cgroup, unit)
        name = target.directory if cgroup.problem else cgroup.name
        spec = msgspec.structs.replace(SPEC, name=f"{SPEC.name} {name}", asked=str(target.io_weight), skip=problem)
        if problem is None:
            place = Place(
                f"{cgroup.directory}/{_FILE}",
                Codec.WEIGHT,
                unit=unit,
                unit_property=None if unit is None else "IOWeight",
            )
            spec = msgspec.structs.replace(spec, place=place)
        found[name] = spec
    return tuple(found.values())


def _problem(fs: HostFS, cgroup: UnifiedCgroup, unit: str | None) -> str | None:
    """Without the file there is no value that could be given back."""
    if fs.exists(f"{cgroup.directory}/{_FILE}"):
        return None
    cure = f"; IOAccounting=yes in {unit} makes systemd give it" if unit is not None else ""
    return f"{cgroup.name} has no {_FILE}: the cgroup above it does not give it the io controller{cure}"
