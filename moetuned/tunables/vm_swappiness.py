"""What swapping costs beside reading files again, on a scale to 200 (100: the same): how eagerly private memory is swapped.

Why: Between them, private memory and page cache share RAM, and the kernel takes from the one that is cheaper to read back. How cheap
swap is depends on where it lives, and a wrong guess either pushes the model out or swaps a program out for a disk that
turns.

Risk: Too high for a slow disk, and programs stand still while they come back from swap; too low for compressed RAM, and experts are
dropped that idle memory could have made room for.

Computed: From the swap that is on and that moetuned is about to make: 10 where one is on a rotational disk, 60 (the kernel's default) where
all is on SSD, 133 where all is compressed in RAM; nothing without swap. With both kinds nothing either, but 133 in the profile
moe-offload-zram where compressed RAM is filled first.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (swappiness: 133 for swap twice as fast as the file system; up to 200
since 5.8).

Not when: There is no swap: it has no effect then. A cgroup of version 1 has a memory.swappiness of its own, which counts there.
"""

from collections.abc import Callable

import msgspec

from moetuned.decide.swap_values import highest_swappiness, swappiness
from moetuned.host.fs import HostFS
from moetuned.host.swap_home import swap_home
from moetuned.schema.tunable import Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="vm.swappiness",
    config_key="tuning.sysctl.vm.swappiness",
    place=Place("/proc/sys/vm/swappiness", Codec.INTEGER),
    wanted={"moe-offload": "60", "moe-offload-zram": "133"},
    lowest=0,
    highest=200,
)


def instances(fs: HostFS, targets: Targets, device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """With the value for where swap lives on this machine."""
    try:
        release = fs.read_text("/proc/sys/kernel/osrelease", 256)
    except OSError:
        release = ""
    chosen = swappiness(swap_home(fs, device_of, targets.swap), targets.profile, highest_swappiness(release))
    return (msgspec.structs.replace(SPEC, wanted=chosen.values, because=chosen.because, skip=chosen.skip),)
