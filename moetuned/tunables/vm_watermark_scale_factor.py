"""How early the kernel starts to reclaim memory in the background, in ten-thousandths of RAM between its marks.

Why: Further apart, background reclaim runs ahead of a burst of reads and the backend waits less in direct reclaim. The same memory
is then free instead of holding experts (100: 1 % of RAM), so the profiles leave it alone.

Risk: 1000 keeps a tenth of RAM free between the marks: a model that fitted just so no longer does.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (watermark_scale_factor: at most 3000).

Not when: allocstall counters of /proc/vmstat stand still while the backend decodes: nobody waits for reclaim then.
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="vm.watermark_scale_factor",
    config_key="tuning.sysctl.vm.watermark_scale_factor",
    place=Place("/proc/sys/vm/watermark_scale_factor", Codec.INTEGER),
    wanted={},
    lowest=1,
    highest=3000,
    useful_highest=500,
)
