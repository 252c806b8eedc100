"""Share of available memory, in percent, that may wait to be written before writers must write themselves.

Why: Pages that wait to be written cannot be dropped, so a large download or a log burst takes page cache from the model; a
lower share makes the writer pay instead of the reader.

Risk: A program that writes much at once has to wait for the disk earlier.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (dirty_ratio, dirty_bytes); mm/page-writeback.c for how the two
exclude each other.

Not when: The machine mostly writes large files in bursts and has memory to spare for them. vm.dirty_bytes sets the same limit in
bytes: choose one of the two.
"""

from moetuned.schema.tunable import Bound, Codec, Place, TunableSpec, Twin

SPEC = TunableSpec(
    name="vm.dirty_ratio",
    config_key="tuning.sysctl.vm.dirty_ratio",
    place=Place("/proc/sys/vm/dirty_ratio", Codec.INTEGER, "/proc/sys/vm/dirty_bytes"),
    wanted={"moe-offload": "10", "moe-offload-zram": "10"},
    bound=Bound.AT_MOST,
    lowest=0,
    highest=100,
    twin=Twin("vm.dirty_bytes", lowest=8192),
)
