from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.rival_match import describe_rival, disagrees, rivals_of, who_else_sets
from moetuned.schema.rival import Rival
from moetuned.schema.tunable import Bound, Codec, Place


def rival(path: str, value: str | None = "1", bound: Bound = Bound.SET, only: str | None = None) -> Rival:
    return Rival("tuned, profile x", path, value, "at boot", bound=bound, only=only)


@pytest.mark.parametrize(
    ("theirs", "ours", "yes"),
    [
        ("/proc/sys/vm/dirty_ratio", "/proc/sys/vm/dirty_ratio", True),
        ("/proc/sys/vm/dirty_ratio", "/proc/sys/vm/dirty_bytes", False),
        ("/sys/block/*/queue/read_ahead_kb", "/sys/block/vda/bdi/read_ahead_kb", True),
        ("/sys/block/nvme*/queue/read_ahead_kb", "/sys/block/vda/bdi/read_ahead_kb", False),
        ("/sys/block/sd[a-z]/bdi/read_ahead_kb", "/sys/block/sdb/queue/read_ahead_kb", True),
        ("/sys/block/*/queue/scheduler", "/sys/block/vda/queue/nr_requests", False),
        # the number of a disk in /sys/class/bdi is another name of its read-ahead, a file system's own bdi is not
        ("/sys/block/*/queue/read_ahead_kb", "/sys/class/bdi/252:0/read_ahead_kb", True),
        ("/sys/block/*/queue/read_ahead_kb", "/sys/class/bdi/btrfs-1/read_ahead_kb", False),
        ("/sys/block/vdb/queue/read_ahead_kb", "/sys/class/bdi/252:0/read_ahead_kb", False),
        ("/sys/class/bdi/*/read_ahead_kb", "/sys/class/bdi/btrfs-1/read_ahead_kb", True),
        ("/sys/class/bdi/*/read_ahead_kb", "/sys/block/vda/bdi/read_ahead_kb", True),
        ("/sys/class/bdi/[0-9]*:*/read_ahead_kb", "/sys/block/vda/bdi/read_ahead_kb", True),
        ("/sys/class/bdi/btrfs-*/read_ahead_kb", "/sys/block/vda/bdi/read_ahead_kb", False),
        ("/sys/class/bdi/8:*/read_ahead_kb", "/sys/block/vda/bdi/read_ahead_kb", False),
        ("/sys/kernel/mm/*/enabled", "/sys/kernel/mm/transparent_hugepage/enabled", True),
        ("/sys/kernel/*/enabled", "/sys/kernel/mm/transparent_hugepage/enabled", False),
    ],
)
def test_who_sets_a_place(theirs: str, ours: str, yes: bool) -> None:
    assert rivals_of([rival(theirs)], [ours]) == ((rival(theirs),) if yes else ())


def test_both_files_of_a_pair_and_each_rival_once() -> None:
    ratio, other = rival("/proc/sys/vm/dirty_ratio"), rival("/proc/sys/vm/dirty_bytes", "4096")
    found = rivals_of([ratio, other, ratio, rival("/proc/sys/vm/swappiness")], [ratio.path, other.path])
    assert found == (ratio, other)


@pytest.mark.parametrize(
    ("value", "bound", "ours", "yes"),
    [
        ("10", Bound.SET, "10", False),
        ("010", Bound.SET, "10", False),
        ("11", Bound.SET, "10", True),
        ("never", Bound.SET, "madvise", True),
        (None, Bound.SET, "10", True),
        ("4096", Bound.AT_LEAST, "128", True),
        ("4096", Bound.AT_LEAST, "8192", False),
        ("10", Bound.AT_MOST, "20", True),
        ("10", Bound.AT_MOST, "5", False),
        ("x", Bound.AT_MOST, "5", True),
    ],
)
def test_whether_it_matters(value: str | None, bound: Bound, ours: str, yes: bool) -> None:
    assert disagrees(rival("/proc/sys/vm/a", value, bound), ours) is yes


def test_in_words() -> None:
    assert describe_rival(rival("/a", "10")) == "tuned, profile x sets it to 10 at boot"
    assert describe_rival(rival("/a", "10", Bound.AT_LEAST)) == "tuned, profile x raises it to 10 at boot"
    assert "only known when it runs" in describe_rival(rival("/a", None))
    assert describe_rival(rival("/a", "1", only="KERNEL!=x")).endswith(", only where KERNEL!=x")
    zram = Rival("zram-generator, f line 1", "/proc/swaps", "/dev/zram0", "at boot")
    assert describe_rival(zram) == "zram-generator, f line 1 makes swap on /dev/zram0 at boot"


@given(st.text(st.sampled_from("/sysblockclassbdi*?[]:0-"), max_size=40), st.text(max_size=20))
def test_a_place_always_has_the_rival_of_its_own_path(path: str, value: str) -> None:
    assert rivals_of([rival(path, value)], [path]) == (rival(path, value),)
    assert not disagrees(rival(path, value), value)


def test_one_who_sets_both_files_of_a_pair_is_said_once() -> None:
    place = Place("/proc/sys/vm/dirty_ratio", Codec.INTEGER, "/proc/sys/vm/dirty_bytes")
    found = (
        Rival("tool", "/proc/sys/vm/dirty_ratio", None, "at boot"),
        Rival("tool", "/proc/sys/vm/dirty_bytes", None, "at boot"),
        Rival("other", "/proc/sys/vm/dirty_ratio", "40", "at boot"),
        Rival("other", "/proc/sys/vm/dirty_bytes", "0", "at boot"),
    )
    told = who_else_sets(found, place, "10")
    assert [each.split()[0] for each in told] == ["tool", "other"]
