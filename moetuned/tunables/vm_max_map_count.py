"""How many memory areas one process may have mapped.

Why: A program that maps many files, or changes parts of a mapping, fails with "cannot allocate memory" at this number however much
memory is free. A backend needs a few for each file of its model, far below the usual 65530, so the profiles leave it alone.

Risk: A program that leaks mappings is stopped later, and its areas take kernel memory until then.

Source: Documentation/admin-guide/sysctl/vm.rst of the kernel (max_map_count).

Not when: No program on the machine has met the limit. Write at-least: a distribution may have set a higher one.
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="vm.max_map_count",
    config_key="tuning.sysctl.vm.max_map_count",
    place=Place("/proc/sys/vm/max_map_count", Codec.INTEGER),
    wanted={},
    lowest=1024,
    own_lowest=True,
    highest=2**31 - 1,
    useful_highest=2**24,
)
