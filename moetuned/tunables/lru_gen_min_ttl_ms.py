"""Time (ms) for which memory that was used is not reclaimed, where the kernel has the multi-gen LRU; 0: none.

Why: It keeps the working set of the last moments in memory, and the OOM killer ends a program where that does not fit. A model
larger than RAM is streamed for ever and means to be reclaimed, so the profiles leave this alone.

Risk: The kernel kills instead of thrashing: with a model larger than RAM, that may be the backend, at once.

Source: Documentation/admin-guide/mm/multigen_lru.rst of the kernel (min_ttl_ms; kernels from 6.1 on).

Not when: A model does not fit in memory, or /sys/kernel/mm/lru_gen/enabled is 0x0000: it has no effect then.
"""

from moetuned.schema.tunable import Codec, Place, TunableSpec

SPEC = TunableSpec(
    name="lru_gen_min_ttl_ms",
    config_key="tuning.lru_gen_min_ttl_ms",
    place=Place("/sys/kernel/mm/lru_gen/min_ttl_ms", Codec.INTEGER),
    wanted={},
    lowest=0,
    highest=3600000,
    useful_highest=10000,
)


def warn(value: str) -> str | None:
    """What is to be said of a value that the configuration asks for."""
    if value == "0":
        return None
    return (
        "the kernel kills instead of reclaiming what was used within this time, as all of a model larger than memory is"
    )
