"""What a page fault may do to get a transparent huge page: reclaim and compact at once, wake the background, or nothing.

Why: With always, a fault of any program drops page cache and moves pages to make 2 MiB of room, and what it drops are experts.
The profiles switch huge pages themselves off, which leaves nothing for this to do, so they leave it alone.

Risk: With never or defer, programs get fewer huge pages on a machine that has been up for long.

Source: Documentation/admin-guide/mm/transhuge.rst of the kernel (defrag).

Not when: Huge pages are never used on the machine: it has no effect then.
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="transparent_hugepage_defrag",
    config_key="tuning.thp_defrag",
    place=Place("/sys/kernel/mm/transparent_hugepage/defrag", Codec.CHOICE),
    wanted={},
    choices=("always", "defer", "defer+madvise", "madvise", "never"),
)
