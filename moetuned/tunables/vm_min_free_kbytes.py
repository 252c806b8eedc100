"""Memory (KiB) that the kernel keeps free for allocations that cannot wait.

Why: When network or disk bursts allocate faster than page cache is dropped, allocations stall or fail; a larger reserve gives the
kernel time. It is memory that holds no expert, so the profiles leave it alone: the kernel computes it from the size of RAM.

Risk: A few percent of RAM too many and the machine has no memory left to work with; the kernel kills. It takes any value.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (min_free_kbytes); mm/page_alloc.c (calculate_min_free_kbytes).

Not when: There are no "page allocation failure" lines in the kernel's log. Below 1024 the machine can lock up.

Side effect: The kernel takes a value that was written as a person's choice: when huge pages or memory are changed later, it only
raises it and does not compute a lower one any more. That stays after the value is put back, until the next boot.
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="vm.min_free_kbytes",
    config_key="tuning.sysctl.vm.min_free_kbytes",
    place=Place("/proc/sys/vm/min_free_kbytes", Codec.INTEGER),
    wanted={},
    lowest=1024,
    own_lowest=True,
    highest=2**31 - 1,
    useful_highest=2 << 20,
)
