"""Settings, wishes and kernels for the tests of applying and giving back: the same whatever the profiles come to want."""

from __future__ import annotations

from fakes.fake_kernel import FakeKernel, add_disk, usual_kernel

from moetuned.decide.tuning_plan import choose, plan
from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import read_for_plan
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.tunable import Bound, Codec, Place, PlannedStep, TunableSpec, Twin
from moetuned.state.undo_journal import UndoJournal

VM = "/proc/sys/vm/"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
MIN_FREE = VM + "min_free_kbytes"
QUEUE = "/sys/block/vda/queue/"
MOE = Tuning(profile=Profile.MOE_OFFLOAD)
OBSERVE = Tuning()


def sysctl(name: str, wanted: str, highest: int, bound: Bound = Bound.SET, twin: str | None = None) -> TunableSpec:
    path = VM + name.removeprefix("vm.")
    return TunableSpec(
        name=name,
        config_key=f"tuning.sysctl.{name}",
        place=Place(path, Codec.INTEGER, None if twin is None else VM + twin.removeprefix("vm.")),
        wanted={"moe-offload": wanted} if wanted else {},
        bound=bound,
        lowest=0,
        highest=highest,
        twin=None if twin is None else Twin(twin),
    )


SPECS = (
    TunableSpec(
        name="transparent_hugepage",
        config_key="tuning.thp",
        place=Place(THP, Codec.CHOICE),
        wanted={"moe-offload": "never"},
        choices=("always", "madvise", "never"),
        side_effects=(Place(MIN_FREE, Codec.INTEGER),),
    ),
    sysctl("vm.dirty_background_ratio", "5", 100, Bound.AT_MOST, "vm.dirty_background_bytes"),
    sysctl("vm.dirty_ratio", "10", 100, Bound.AT_MOST, "vm.dirty_bytes"),
    sysctl("vm.min_free_kbytes", "", 2**31 - 1),
    sysctl("vm.overcommit_memory", "1", 2),
    sysctl("vm.vfs_cache_pressure", "50", 1000, Bound.AT_MOST),
)
DISK_SPECS = (
    TunableSpec(
        name="nr_requests vda",
        config_key="tuning.nr_requests",
        place=Place(QUEUE + "nr_requests", Codec.INTEGER),
        wanted={},
        lowest=4,
        highest=65536,
    ),
    TunableSpec(
        name="scheduler vda",
        config_key="tuning.scheduler",
        place=Place(QUEUE + "scheduler", Codec.CHOICE),
        wanted={},
        choices=("none", "mq-deadline", "kyber", "bfq"),
        side_effects=(Place(QUEUE + "nr_requests", Codec.INTEGER), Place(QUEUE + "wbt_lat_usec", Codec.INTEGER)),
    ),
)


def kernel_with_disk() -> FakeKernel:
    """The usual settings and a disk without a scheduler, whose queue somebody has shortened."""
    kernel = usual_kernel()
    add_disk(kernel, "vda", "254:0", 8192)
    link = kernel.follow("/sys/block/vda")
    kernel.foreign_write(f"{link}/queue/nr_requests", "64")
    return kernel


def steps_for(kernel: HostFS, wanted: Tuning = MOE, journal: UndoJournal | None = None) -> tuple[PlannedStep, ...]:
    """The plan for `wanted`; the disk's settings are in it where there is a disk."""
    specs = (*SPECS, *(DISK_SPECS if kernel.exists(QUEUE + "scheduler") else ()))
    chosen, problems = choose(wanted, specs)
    assert problems == ()
    readings = {item.spec.name: read_for_plan(kernel, item.spec.place) for item in chosen}
    originals = {} if journal is None else {name: entry.original for name, entry in journal.held.items()}
    return plan(wanted.profile, chosen, readings, {}, originals)
