from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.memory_headroom import memory_view, tightest_room
from moetuned.schema.sample import BackendSample, CgroupMemory, MachineSample, MemInfo, ProcessCounters

GIB = 1 << 30
INFO = MemInfo(
    total_bytes=32 * GIB,
    free_bytes=1 * GIB,
    available_bytes=30 * GIB,
    cached_bytes=24 * GIB,
    anonymous_bytes=5 * GIB,
    shared_bytes=1 * GIB,
    unevictable_bytes=0,
    slab_unreclaimable_bytes=GIB // 2,
    swap_total_bytes=8 * GIB,
    swap_free_bytes=6 * GIB,
    buffers_bytes=0,
    reclaimable_file_bytes=23 * GIB,
)


def view_of(info: MemInfo | None, cgroup: CgroupMemory | None = None) -> tuple[str, int | None]:
    view = memory_view(MachineSample(meminfo=info), BackendSample("one", cgroup=cgroup))
    return view.scope, view.headroom_bytes


def test_on_the_machine_anonymous_shared_kernel_and_swapped_count_and_the_page_cache_does_not() -> None:
    assert view_of(INFO) == ("machine", 32 * GIB - 5 * GIB - 1 * GIB - GIB // 2 - 2 * GIB)


def test_a_locked_model_cannot_be_reclaimed() -> None:
    from msgspec.structs import replace

    locked = replace(INFO, reclaimable_file_bytes=3 * GIB, unevictable_bytes=20 * GIB)
    assert view_of(locked)[1] == (view_of(INFO)[1] or 0) - 20 * GIB
    assert view_of(replace(locked, unevictable_bytes=0))[1] == view_of(INFO)[1], "locked anonymous memory counts once"


def test_the_tighter_limit_holds() -> None:
    small = CgroupMemory(2, current_bytes=10 * GIB, limit_bytes=12 * GIB, reclaimable_file_bytes=7 * GIB)
    assert view_of(INFO, small) == ("cgroup", 9 * GIB)
    large = CgroupMemory(2, current_bytes=10 * GIB, limit_bytes=64 * GIB, reclaimable_file_bytes=7 * GIB)
    assert view_of(INFO, large)[0] == "machine"
    assert view_of(INFO, CgroupMemory(2, current_bytes=10 * GIB, reclaimable_file_bytes=7 * GIB))[0] == "machine"


def test_memory_high_is_a_limit_too() -> None:
    cgroup = CgroupMemory(
        2, current_bytes=10 * GIB, limit_bytes=12 * GIB, high_bytes=11 * GIB, reclaimable_file_bytes=7 * GIB
    )
    assert view_of(None, cgroup) == ("cgroup", 8 * GIB)


def test_without_lru_counters_the_parts_are_added() -> None:
    cgroup = CgroupMemory(1, limit_bytes=12 * GIB, anonymous_bytes=3 * GIB, shared_bytes=GIB, kernel_bytes=GIB)
    assert view_of(None, cgroup) == ("cgroup", 7 * GIB)


def test_swap_that_is_left_is_room_before_the_oom_killer_but_no_headroom() -> None:
    room = tightest_room(MachineSample(meminfo=INFO), BackendSample("one"))
    assert room is not None
    assert room.oom_room_bytes == room.headroom_bytes + 2 * GIB + 6 * GIB


def test_unknown_says_why_and_still_shows_the_backend() -> None:
    view = memory_view(
        MachineSample(), BackendSample("one", process=ProcessCounters(1, rss_anon_bytes=5, swap_bytes=7))
    )
    assert (view.scope, view.headroom_bytes, view.backend_anonymous_bytes, view.backend_swap_bytes) == (
        "unknown",
        None,
        5,
        7,
    )
    assert view.unknown is not None
    assert "/proc/meminfo" in view.unknown


@given(
    st.builds(
        CgroupMemory,
        version=st.just(2),
        current_bytes=st.integers(0, 1 << 50),
        limit_bytes=st.integers(1, 1 << 50),
        reclaimable_file_bytes=st.integers(0, 1 << 50),
    )
)
def test_headroom_never_exceeds_the_limit(cgroup: CgroupMemory) -> None:
    headroom = view_of(None, cgroup)[1]
    assert headroom is not None
    assert cgroup.limit_bytes is not None
    assert headroom <= cgroup.limit_bytes
