"""Whether the kernel refuses allocations that exceed what it thinks it can back.

Why: A backend that maps a model larger than RAM, or forks to run a tool, can be refused by the heuristic (0) although it
will never touch most of that memory; 1 grants every request and leaves the limit to what is really used.

Risk: A program that asks for more memory than there is, is killed when it uses it instead of being refused when it asks.

Source: Documentation/mm/overcommit-accounting.rst and Documentation/admin-guide/sysctl/vm.rst of the kernel.

Not when: A program on the machine relies on allocations that fail early, for example a database set up for strict accounting (2).
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="vm.overcommit_memory",
    config_key="tuning.sysctl.vm.overcommit_memory",
    place=Place("/proc/sys/vm/overcommit_memory", Codec.INTEGER),
    wanted={"moe-offload": "1", "moe-offload-zram": "1"},
    lowest=0,
    highest=2,
    keep={"2": "2 is strict accounting, which somebody chose with intent"},
)


def warn(value: str) -> str | None:
    """What is to be said of a value that the configuration asks for."""
    if value != "2":
        return None
    return "a backend may be refused memory although most of RAM only holds page cache"
