"""Whether the kernel backs anonymous memory with huge pages of 2 MiB by itself.

Why: Huge pages round anonymous memory up, and compaction to make them evicts page cache that holds experts; a mapped model file
does not get them anyway.

Risk: Programs that gain from huge pages (databases, virtual machines) translate more addresses and may lose some percent.

Source: Documentation/admin-guide/mm/transhuge.rst of the kernel (enabled); mm/khugepaged.c (set_recommended_min_free_kbytes).

Not when: The whole model fits in memory and is loaded into anonymous memory (no mapping, or repacked weights): huge pages then save
page table walks.

Side effect: The kernel computes vm.min_free_kbytes anew whenever this changes, and keeps less free without huge pages (seen: 67584 became
19829); putting this back makes it compute the higher value again. Where something else stood there, that is put back too.
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="transparent_hugepage",
    config_key="tuning.thp",
    place=Place("/sys/kernel/mm/transparent_hugepage/enabled", Codec.CHOICE),
    wanted={"moe-offload": "never", "moe-offload-zram": "never"},
    choices=("always", "madvise", "never"),
    side_effects=(Place("/proc/sys/vm/min_free_kbytes", Codec.INTEGER),),
)
