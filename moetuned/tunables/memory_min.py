"""Memory of a backend's cgroup that the kernel never takes: it kills programs instead (memory.min, in bytes; cgroup v2).

Why: With the multi-gen LRU, which most distributions have, memory.low gives way as soon as the whole machine is short, and a backup or a
build pushes the experts out. This holds there, too. What may be kept depends on what else the machine is for, so no profile sets it:
`memory_min` of a backend does.

Risk: Everybody else has that much less, and is killed where that is too little, also while the backend rests. So it is refused, and
nothing is written, where too little would stay for others: of RAM, and of each limit of a cgroup above the backend's (memory.max,
memory.high), a quarter at least, and 2 GiB unless that is more than half of it. What all backends ask for together counts, those that do not
run included, and what others keep (memory.min of their cgroups). It is refused, too, where beside it and what others use less would be left
than twice the headroom at which memory is near its limit (`limits.near`), and given up at once for 10 minutes when memory is near its
limit: what is kept counts there as what cannot be reclaimed.

Source: Documentation/admin-guide/cgroup-v2.rst of the kernel (memory.min: more than is generally available leads to constant OOMs);
mm/page_counter.c (effective_protection: a cgroup is protected only as far as those above it); mm/vmscan.c (mem_cgroup_below_min);
measured in a virtual machine by tests/system.

Not when: The backend is alone on the machine, or the classic LRU is in use (even number in /sys/kernel/mm/lru_gen/enabled): `memory_low`
holds there, and gives way before a program is killed.

Side effect: For a unit, systemd keeps what it was told last, also when that is the value of before, in
/run/systemd/system.control/ until the next boot. The cgroups above the backend's are raised to hold what those below them ask for. What a
backend leaves unused of it protects its neighbours in the same slice where the mount has memory_recursiveprot, which is what systemd mounts.
"""

from collections.abc import Callable, Mapping

from moetuned.host.cgroup_protection import Asked, protection_settings
from moetuned.host.fs import HostFS
from moetuned.host.protection_room import refusals
from moetuned.parse.config_values import headroom_limit
from moetuned.schema.tunable import CgroupTarget, Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="memory_min",
    config_key="backends.memory_min",
    place=Place("/sys/fs/cgroup/*/memory.min", Codec.LIMIT),
    wanted={},
    lowest=0,
    per_device=True,
)


def instances(fs: HostFS, targets: Targets, _device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each cgroup that a backend's memory is to be kept in, and one for each cgroup above it; refused where it is too much."""

    def refuse(fs: HostFS, asked: Asked) -> Mapping[str, str]:
        if targets.short is not None:
            return dict.fromkeys(asked.own, targets.short)
        return refusals(fs, asked, headroom_limit(targets.limits.near))

    return protection_settings(fs, targets, SPEC, "MemoryMin", _asked, refuse=refuse)


def _asked(target: CgroupTarget) -> int | None:
    return target.memory_min_bytes
