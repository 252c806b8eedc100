"""How many requests may wait at a disk: nr_requests of the disks under the backends' models.

Why: A longer queue lets a scheduler sort and merge more; a shorter one keeps a burst of writes from standing before the reads of
a fault. The kernel chooses it from what the disk can take, so the profiles leave it alone.

Risk: Too short, and a fast disk runs dry; too long, and a read waits behind many writes.

Source: Documentation/ABI/stable/sysfs-block of the kernel (queue/nr_requests); block/blk-sysfs.c (queue_requests_store: 4 or more,
and without a scheduler no more than the disk itself can take).

Not when: Nobody has measured that requests wait for a place in the queue.
"""

from collections.abc import Callable

import msgspec

from moetuned.host.block_devices import disks_under
from moetuned.host.fs import HostFS
from moetuned.schema.tunable import Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="nr_requests",
    config_key="tuning.nr_requests",
    place=Place("/sys/block/*/queue/nr_requests", Codec.INTEGER),
    wanted={},
    lowest=4,
    highest=65536,
    per_device=True,
)


def instances(fs: HostFS, targets: Targets, device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each disk under the models of `targets`, `nr_requests nvme0n1`; a model without known disks says why."""
    disks, unknown = disks_under(fs, (target.path for target in targets.models), device_of)
    return (
        *(
            msgspec.structs.replace(
                SPEC,
                name=f"{SPEC.name} {disk}",
                place=Place(f"/sys/block/{disk}/queue/nr_requests", Codec.INTEGER),
            )
            for disk in disks
        ),
        *(msgspec.structs.replace(SPEC, name=f"{SPEC.name} {model}", skip=why) for model, why in unknown.items()),
    )
