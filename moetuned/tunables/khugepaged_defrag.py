"""Whether khugepaged, which joins pages to huge ones in the background, may reclaim and compact memory for it (1) or not (0).

Why: It wakes every ten seconds and may drop page cache for a huge page that nobody waits for. The profiles switch huge pages off,
and khugepaged sleeps then, so they leave this alone.

Risk: With 0, memory that has been in use for long is joined to huge pages only where 2 MiB are free anyway.

Source: Documentation/admin-guide/mm/transhuge.rst of the kernel (khugepaged/defrag).

Not when: Huge pages are never used on the machine: khugepaged does not run then.
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="khugepaged_defrag",
    config_key="tuning.khugepaged_defrag",
    place=Place("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", Codec.INTEGER),
    wanted={},
    lowest=0,
    highest=1,
)
