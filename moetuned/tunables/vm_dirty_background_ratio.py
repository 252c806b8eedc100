"""Share of available memory, in percent, at which the kernel starts to write dirty pages in the background.

Why: Starting early keeps few pages waiting, so that reading experts is not held up behind a long burst of writes.

Risk: The disk is written a little earlier and more often.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (dirty_background_ratio, dirty_background_bytes).

Not when: Short-lived files should never reach the disk, for example builds on a machine with much memory.
vm.dirty_background_bytes sets the same limit in bytes: choose one of the two.
"""

from moetuned.schema.tunable import Bound, Codec, Place, TunableSpec, Twin

SPEC = TunableSpec(
    name="vm.dirty_background_ratio",
    config_key="tuning.sysctl.vm.dirty_background_ratio",
    place=Place(
        "/proc/sys/vm/dirty_background_ratio",
        Codec.INTEGER,
        "/proc/sys/vm/dirty_background_bytes",
    ),
    wanted={"moe-offload": "5", "moe-offload-zram": "5"},
    bound=Bound.AT_MOST,
    lowest=0,
    highest=100,
    twin=Twin("vm.dirty_background_bytes"),
)
