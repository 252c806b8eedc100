"""How many pages are read from swap at once, as a power of two (0: one page, 3: eight pages).

Why: Neighbours in swap are read along in the hope that they are needed next, which saves seeks on a disk. In compressed
memory there is nothing to seek: each page that nobody needs is decompressed in vain and takes memory from page cache.

Risk: None where all swap is compressed in RAM; with swap on a disk, coming back from swap takes more reads.

Computed: 0 where all swap, what moetuned is about to make included, is compressed in RAM; in the profile moe-offload-zram also where there
is swap on a disk that is filled after it; else nothing.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (page-cluster); mm/swap_state.c (swapin_nr_pages).

Not when: There is swap on a disk: the profiles leave it alone then.
"""

from collections.abc import Callable

import msgspec

from moetuned.decide.swap_values import page_cluster
from moetuned.host.fs import HostFS
from moetuned.host.swap_home import swap_home
from moetuned.schema.tunable import Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="vm.page-cluster",
    config_key="tuning.sysctl.vm.page-cluster",
    place=Place("/proc/sys/vm/page-cluster", Codec.INTEGER),
    wanted={"moe-offload": "0", "moe-offload-zram": "0"},
    lowest=0,
    highest=31,
    useful_highest=6,
)


def instances(fs: HostFS, targets: Targets, device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """With the value for where swap lives on this machine."""
    chosen = page_cluster(swap_home(fs, device_of, targets.swap), targets.profile)
    return (msgspec.structs.replace(SPEC, wanted=chosen.values, because=chosen.because, skip=chosen.skip),)
