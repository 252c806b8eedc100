"""In which order a disk's waiting requests are sent to it: the I/O scheduler of the disks under the backends' models.

Why: Faults on a model are many small random reads. An NVMe disk orders them itself, and a scheduler only adds its own time; on a
disk that others write to at the same time, mq-deadline or kyber keep reads from waiting behind writes. Which is better depends on the
disk and its neighbours, so the profiles leave the distribution's choice alone.

Risk: The disk stops for a moment while its queue is emptied and exchanged; programs with an I/O priority (ionice) or weight lose it
without bfq.

Source: Documentation/block/switching-sched.rst of the kernel; block/elevator.c (elevator_switch); block/bfq-iosched.c.

Not when: The disk is shared by users who were promised shares of it: those need bfq.

Side effect: The kernel sets nr_requests of the disk anew whenever this changes, and bfq turns write-back throttling (wbt_lat_usec)
off while it is chosen. Both are put back.
"""

from collections.abc import Callable

import msgspec

from moetuned.host.block_devices import disks_under
from moetuned.host.fs import HostFS
from moetuned.schema.tunable import Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="scheduler",
    config_key="tuning.scheduler",
    place=Place("/sys/block/*/queue/scheduler", Codec.CHOICE),
    wanted={},
    choices=("none", "mq-deadline", "kyber", "bfq"),
    per_device=True,
)


def instances(fs: HostFS, targets: Targets, device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each disk under the models of `targets`, `scheduler nvme0n1`; a model without known disks is one that says why."""
    disks, unknown = disks_under(fs, (target.path for target in targets.models), device_of)
    return (
        *map(_of_disk, disks),
        *(msgspec.structs.replace(SPEC, name=f"{SPEC.name} {model}", skip=why) for model, why in unknown.items()),
    )


def _of_disk(disk: str) -> TunableSpec:
    queue = f"/sys/block/{disk}/queue"
    return msgspec.structs.replace(
        SPEC,
        name=f"{SPEC.name} {disk}",
        place=Place(f"{queue}/scheduler", Codec.CHOICE),
        side_effects=(Place(f"{queue}/nr_requests", Codec.INTEGER), Place(f"{queue}/wbt_lat_usec", Codec.INTEGER)),
    )
