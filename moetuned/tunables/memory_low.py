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
of it (seen on 6.12). What holds then: `memory_min` of the backend; MemoryHigh= of what pushes it out; the classic LRU for the whole machine
(n in that file).

Side effect: For a unit, systemd keeps what it was told last, also when that is the value of before, in
/run/systemd/system.control/ until the next boot. The cgroups above the backend's are raised to hold what those below them ask for. What a backend leaves unused of it protects
its neighbours in the same slice where the mount has memory_recursiveprot, which is what systemd mounts.
"""

from collections.abc import Callable

from moetuned.host.cgroup_protection import protection_settings
from moetuned.host.fs import HostFS
from moetuned.host.unified_cgroup import low_is_weak
from moetuned.schema.tunable import CgroupTarget, Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="memory_low",
    config_key="backends.memory_low",
    place=Place("/sys/fs/cgroup/*/memory.low", Codec.LIMIT),
    wanted={},
    lowest=0,
    per_device=True,
)
WEAK = "with the multi-gen LRU it gives way when the whole machine is short, and holds only under a limit; what holds then is memory_min"


def instances(fs: HostFS, targets: Targets, _device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each cgroup that a backend's memory is to be protected in, and one for each cgroup above it."""
    return protection_settings(fs, targets, SPEC, "MemoryLow", _asked, because=WEAK if low_is_weak(fs) else "")


def _asked(target: CgroupTarget) -> int | None:
    return target.memory_low_bytes
