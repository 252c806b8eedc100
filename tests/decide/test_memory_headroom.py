from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moetuned.decide.memory_headroom import (
    cgroup_limit_text,
    growing_bytes_around,
    memory_under_each,
    memory_view,
    room_at,
    rooms,
    smallest_oom_room_bytes,
    tightest_room,
)
from moetuned.schema.sample import (
    BackendSample,
    CgroupAbove,
    CgroupMemory,
    KeptMemory,
    MachineSample,
    MemInfo,
    ProcessCounters,
)

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
    locked = replace(INFO, reclaimable_file_bytes=3 * GIB, unevictable_bytes=20 * GIB)
    assert view_of(locked)[1] == (view_of(INFO)[1] or 0) - 20 * GIB
    assert view_of(replace(locked, unevictable_bytes=0))[1] == view_of(INFO)[1], "locked anonymous memory counts once"


def test_the_tighter_limit_holds() -> None:
    small = CgroupMemory(2, current_bytes=10 * GIB, limit_bytes=12 * GIB, reclaimable_file_bytes=7 * GIB)
    assert view_of(INFO, small) == ("cgroup", 9 * GIB)
    large = CgroupMemory(2, current_bytes=10 * GIB, limit_bytes=64 * GIB, reclaimable_file_bytes=7 * GIB)
    assert view_of(INFO, large)[0] == "machine"
    assert view_of(INFO, CgroupMemory(2, current_bytes=10 * GIB, reclaimable_file_bytes=7 * GIB))[0] == "machine"


def above(current: int, reclaimable: int, limit: int, directory: str = "/sys/fs/cgroup/user.slice") -> CgroupAbove:
    return CgroupAbove(
        directory, CgroupMemory(2, current_bytes=current, reclaimable_file_bytes=reclaimable, limit_bytes=limit)
    )


OWN = CgroupMemory(2, current_bytes=3 * GIB, limit_bytes=8 * GIB, reclaimable_file_bytes=2 * GIB)


def backend_below(*limits: CgroupAbove, own: CgroupMemory = OWN) -> BackendSample:
    return BackendSample("one", cgroup=own, cgroup_directory="/sys/fs/cgroup/user.slice/llm.service", above=limits)


def test_a_limit_above_counts_with_what_everybody_below_it_uses() -> None:
    shared = above(20 * GIB, 6 * GIB, 16 * GIB)
    view = memory_view(MachineSample(meminfo=INFO), backend_below(shared))
    assert (view.scope, view.headroom_bytes, view.limit_bytes) == ("cgroup", 2 * GIB, 16 * GIB)
    assert view.limit_of == "limit 16.0 GiB of user.slice, which others share (the machine has 32.0 GiB)"


def test_memory_under_each_limit_begins_with_the_tightest() -> None:
    shared = above(20 * GIB, 4 * GIB, 30 * GIB)
    backend = backend_below(shared, own=replace(OWN, file_bytes=2 * GIB))
    views = memory_under_each(MachineSample(meminfo=INFO), backend)
    assert [one.scope for one in views] == [backend.cgroup_directory, shared.directory, "machine"]
    assert [one.limit_bytes for one in views] == [8 * GIB, 30 * GIB, 32 * GIB]
    assert views[0].headroom_bytes == memory_view(MachineSample(meminfo=INFO), backend).headroom_bytes
    assert [one.file_cache_bytes for one in views] == [2 * GIB, None, 23 * GIB]
    assert memory_under_each(MachineSample(), BackendSample("one")) == ()


def test_a_limit_above_that_leaves_more_is_not_the_tightest() -> None:
    view = memory_view(MachineSample(meminfo=INFO), backend_below(above(10 * GIB, 9 * GIB, 30 * GIB)))
    assert (view.headroom_bytes, view.limit_of) == (7 * GIB, "limit 8.0 GiB of llm.service (the machine has 32.0 GiB)")


def test_a_limit_that_is_nearly_full_goes_before_one_that_leaves_fewer_bytes() -> None:
    small = CgroupMemory(2, current_bytes=GIB // 4, limit_bytes=GIB, reclaimable_file_bytes=0)
    full = above(63 * GIB, 0, 64 * GIB)
    view = memory_view(MachineSample(), backend_below(full, own=small))
    assert (view.headroom_bytes, view.limit_bytes) == (GIB, 64 * GIB)


def test_an_inherited_limit_of_version_1_is_the_one_that_has_it() -> None:
    inherited = CgroupMemory(1, current_bytes=3 * GIB, limit_bytes=8 * GIB, reclaimable_file_bytes=2 * GIB)
    docker = "/sys/fs/cgroup/memory/docker/" + "3f2a9c0d1e4b" + "0" * 52
    owner = CgroupAbove(
        docker, CgroupMemory(1, current_bytes=3 * GIB, limit_bytes=8 * GIB, reclaimable_file_bytes=2 * GIB)
    )
    backend = BackendSample("one", cgroup=inherited, cgroup_directory=f"{docker}/init", above=(owner,))
    limit = memory_view(MachineSample(), backend).limit_of
    assert limit is not None
    assert limit.startswith("limit 8.0 GiB of docker container 3f2a9c0d1e4b")


def test_whose_limit_it_is_for_people() -> None:
    def text(**more: object) -> str | None:
        return memory_view(MachineSample(), BackendSample("one", cgroup=OWN, **more)).limit_of  # type: ignore[arg-type]

    pod = "/sys/fs/cgroup/machine.slice/libpod-" + "ab" * 32 + ".scope"
    assert text() == "limit 8.0 GiB of its memory cgroup"
    assert text(cgroup_directory=pod) == "limit 8.0 GiB of podman container abababababab"
    assert text(cgroup_directory=f"{pod}/llm.service") == "limit 8.0 GiB of podman container abababababab (llm.service)"
    assert view_of(INFO)[0] == "machine"
    assert memory_view(MachineSample(meminfo=INFO), BackendSample("one")).limit_of == "the machine's 32.0 GiB"
    high = CgroupMemory(2, current_bytes=3 * GIB, limit_bytes=8 * GIB, high_bytes=7 * GIB, reclaimable_file_bytes=0)
    said = memory_view(MachineSample(), BackendSample("one", cgroup=high)).limit_of
    assert said == "memory.high 7.0 GiB of its memory cgroup"


def test_the_text_for_a_reason_is_of_the_limit_it_speaks_of() -> None:
    backend = backend_below(above(20 * GIB, 6 * GIB, 16 * GIB))
    assert cgroup_limit_text(backend, 16 * GIB, 2 * GIB) == "limit 16.0 GiB of user.slice, which others share"
    assert cgroup_limit_text(backend, 32 * GIB, 5 * GIB) is None


def test_one_place_is_the_same_room() -> None:
    backend, machine = backend_below(above(20 * GIB, 6 * GIB, 16 * GIB)), MachineSample(meminfo=INFO)
    for room in rooms(machine, backend):
        assert room_at(rooms(machine, backend), room.place) == room
    assert len(rooms(machine, backend)) == 3
    assert room_at(rooms(machine, backend), "/elsewhere") is None


def test_the_smallest_room_before_a_kill_is_of_any_limit() -> None:
    no_swap = above(20 * GIB, 6 * GIB, 16 * GIB)
    no_swap = CgroupAbove(no_swap.directory, replace(no_swap.memory, swap_limit_bytes=0))
    assert smallest_oom_room_bytes(rooms(MachineSample(meminfo=INFO), backend_below(no_swap))) == 2 * GIB
    assert smallest_oom_room_bytes(rooms(MachineSample(), BackendSample("one"))) is None


def test_locked_page_cache_is_in_use_and_does_not_grow_for_ever() -> None:
    locked = CgroupMemory(
        2,
        current_bytes=7 * GIB,
        file_bytes=6 * GIB,
        unevictable_bytes=4 * GIB,
        reclaimable_file_bytes=2 * GIB,
        limit_bytes=8 * GIB,
    )
    room = tightest_room(MachineSample(), BackendSample("one", cgroup=locked))
    assert room is not None
    assert (room.unreclaimable_bytes, room.growing_bytes) == (5 * GIB, GIB)
    assert growing_bytes_around(MachineSample(), BackendSample("one", cgroup=locked)) == GIB
    assert growing_bytes_around(MachineSample(meminfo=INFO), BackendSample("one")) == 32 * GIB - (view_of(INFO)[1] or 0)
    assert growing_bytes_around(MachineSample(), BackendSample("one")) is None


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


def test_swap_of_which_nobody_says_how_much_is_free_is_not_used_swap() -> None:
    assert view_of(replace(INFO, swap_free_bytes=None)) == ("machine", (view_of(INFO)[1] or 0) + 2 * GIB)


def test_limits_that_are_known_are_not_worked_out_again() -> None:
    machine, backend = MachineSample(meminfo=INFO), backend_below(above(20 * GIB, 6 * GIB, 16 * GIB))
    assert memory_view(machine, backend, rooms(machine, backend)) == memory_view(machine, backend)
    assert memory_view(machine, backend, ()).unknown is not None


def kept(name: str, keeps: int, current: int, cache: int) -> KeptMemory:
    memory = CgroupMemory(2, current_bytes=current * GIB, reclaimable_file_bytes=cache * GIB)
    return KeptMemory(f"/sys/fs/cgroup/{name}", keeps * GIB, memory=memory)


def headroom(place: str, *found: KeptMemory) -> int:
    backend = backend_below(above(20 * GIB, 6 * GIB, 32 * GIB))
    room = room_at(rooms(MachineSample(meminfo=INFO, kept=found), backend), place)
    assert room is not None
    return room.headroom_bytes // GIB


def test_what_is_kept_below_a_limit_is_not_there_for_anybody_else() -> None:
    own, other = "user.slice/llm.service", "system.slice/other.service"
    machine, slice_, unit = "", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup/user.slice/llm.service"
    before = [headroom(place) for place in (machine, slice_, unit)]
    assert [headroom(place, kept(other, 6, 8, 7)) for place in (machine, slice_, unit)] == [before[0] - 5, *before[1:]]
    # Its own limit takes of what it keeps, those above do not.
    assert [headroom(place, kept(own, 2, 3, 2)) for place in (machine, slice_, unit)] == [
        before[0] - 1,
        before[1] - 1,
        before[2],
    ]


def test_what_of_it_is_the_backends_own() -> None:
    backend = backend_below(above(20 * GIB, 6 * GIB, 32 * GIB))
    found = (kept("user.slice/llm.service", 2, 3, 2), kept("user.slice/other.service", 4, 5, 3))
    machine = MachineSample(meminfo=INFO, kept=found)
    room = room_at(rooms(machine, backend), "")
    assert room is not None
    assert (room.kept_bytes, room.own_kept_bytes) == (3 * GIB, GIB)
    alone = room_at(rooms(machine, BackendSample("elsewhere")), "")
    assert alone is not None
    assert (alone.kept_bytes, alone.own_kept_bytes) == (3 * GIB, 0)


def test_kept_is_no_more_than_is_used_and_what_cannot_be_reclaimed_counts_once() -> None:
    before = headroom("")
    assert headroom("", kept("a", 100, 5, 4)) == before - 4
    assert headroom("", kept("a", 3, 9, 4)) == before, "5 GiB cannot be reclaimed, more than is kept"
    assert headroom("", kept("a", 3, 9, 9)) == before - 3
    assert headroom("", KeptMemory("/sys/fs/cgroup/a", GIB, memory=CgroupMemory(2))) == before, "its use is unknown"


def test_page_cache_that_fills_what_is_kept_is_no_growth() -> None:
    machine = MachineSample(meminfo=INFO, kept=(kept("a", 6, 9, 8),))
    room = tightest_room(machine, BackendSample("one"))
    assert room is not None
    without = tightest_room(MachineSample(meminfo=INFO), BackendSample("one"))
    assert without is not None
    assert (room.growing_bytes, room.kept_bytes) == (without.growing_bytes, 5 * GIB)
    assert room.oom_room_bytes == without.oom_room_bytes - 5 * GIB
    assert memory_view(machine, BackendSample("one")).kept_bytes == 5 * GIB


def test_whose_limit_it_is_is_known_also_where_something_is_kept_below_it() -> None:
    backend = backend_below(above(20 * GIB, 6 * GIB, 16 * GIB))
    machine = MachineSample(meminfo=INFO, kept=(kept("user.slice/llm.service", 2, 3, 2),))
    room = room_at(rooms(machine, backend), "/sys/fs/cgroup/user.slice")
    assert room is not None
    assert "user.slice" in (cgroup_limit_text(backend, room.limit_bytes, room.headroom_bytes) or "")
