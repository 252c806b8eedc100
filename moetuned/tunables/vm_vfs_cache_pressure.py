"""How readily the kernel drops its cache of directory entries and inodes compared with page cache (100: evenly).

Why: Metadata that was dropped has to be read again before the file it describes can be; it is small beside a model, so below
100 the kernel keeps it longer and reads of experts are not held up by it.

Risk: Names and inodes of files take more memory on a machine that walks large trees.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (vfs_cache_pressure: at 1000 the kernel looks for ten times more
to drop than there is).

Not when: The machine walks trees of millions of files (backup, file server): their inodes would then stay in memory that the model
could use.
"""

from moetuned.schema.tunable import Bound, Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="vm.vfs_cache_pressure",
    config_key="tuning.sysctl.vm.vfs_cache_pressure",
    place=Place("/proc/sys/vm/vfs_cache_pressure", Codec.INTEGER),
    wanted={"moe-offload": "50", "moe-offload-zram": "50"},
    bound=Bound.AT_MOST,
    lowest=0,
    highest=2**31 - 1,
    useful_highest=1000,
)
