"""How much room is left before the kernel must kill something: what cannot be reclaimed against its limit.

MemAvailable and the size of the page cache are not the measure: the cache *is* the model. In a cgroup everything but the
page cache on its LRU lists counts (cgroup-v2.rst: the OOM killer comes when nothing is left to reclaim); on the machine
anonymous, shared, locked and unreclaimable kernel memory and huge pages do. The tighter of the two holds.

Memory in swap counts as used: a backend whose memory was pushed out wants it back. `oom_room_bytes` tells apart how much
can still be allocated, swap included, before the OOM killer acts.
"""

from __future__ import annotations

import msgspec

from moetuned.schema.sample import BackendSample, CgroupMemory, MachineSample, MemInfo
from moetuned.schema.snapshot import MemoryView


class Room(msgspec.Struct, frozen=True, gc=False):
    """Use of one limit, bytes. `oom_room_bytes`: what can still be allocated, swap included."""

    scope: str
    limit_bytes: int
    unreclaimable_bytes: int
    swapped_bytes: int
    swap_left_bytes: int
    file_cache_bytes: int | None

    @property
    def headroom_bytes(self) -> int:
        """Limit minus what cannot be reclaimed minus what was swapped out; negative when swap is needed to live."""
        return self.limit_bytes - self.unreclaimable_bytes - self.swapped_bytes

    @property
    def oom_room_bytes(self) -> int:
        """What can still be allocated before the OOM killer acts."""
        return max(0, self.limit_bytes - self.unreclaimable_bytes) + self.swap_left_bytes


def tightest_room(machine: MachineSample, backend: BackendSample) -> Room | None:
    """The limit with the least headroom, of the backend's cgroup and the machine's RAM; None when neither is known."""
    meminfo = machine.meminfo
    rooms = [
        room
        for room in (
            _machine_room(meminfo) if meminfo is not None else None,
            _cgroup_room(backend.cgroup, meminfo) if backend.cgroup is not None else None,
        )
        if room is not None
    ]
    return min(rooms, key=lambda room: room.headroom_bytes) if rooms else None


def memory_view(machine: MachineSample, backend: BackendSample) -> MemoryView:
    """The same for people; says what is unknown. `seconds_to_limit` needs a trend and is left to the caller."""
    room = tightest_room(machine, backend)
    process = backend.process
    anonymous = None if process is None else process.rss_anon_bytes
    swapped = None if process is None else process.swap_bytes
    if room is None:
        return MemoryView(
            backend_anonymous_bytes=anonymous,
            backend_swap_bytes=swapped,
            unknown="neither /proc/meminfo nor the limit and use of the backend's memory cgroup could be read",
        )
    return MemoryView(
        scope=room.scope,
        limit_bytes=room.limit_bytes,
        unreclaimable_bytes=room.unreclaimable_bytes + room.swapped_bytes,
        file_cache_bytes=room.file_cache_bytes,
        headroom_bytes=room.headroom_bytes,
        backend_anonymous_bytes=anonymous,
        backend_swap_bytes=swapped,
    )


def _machine_room(meminfo: MemInfo) -> Room | None:
    total, anonymous, shared = meminfo.total_bytes, meminfo.anonymous_bytes, meminfo.shared_bytes
    if total is None or anonymous is None or shared is None:
        return None
    swap_total, swap_free = meminfo.swap_total_bytes or 0, meminfo.swap_free_bytes or 0
    return Room(
        scope="machine",
        limit_bytes=total,
        unreclaimable_bytes=anonymous
        + shared
        + _locked_file_bytes(meminfo)
        + (meminfo.slab_unreclaimable_bytes or 0)
        + (meminfo.hugepages_bytes or 0),
        swapped_bytes=max(0, swap_total - swap_free),
        swap_left_bytes=swap_free,
        file_cache_bytes=None if meminfo.cached_bytes is None else max(0, meminfo.cached_bytes - shared),
    )


def _locked_file_bytes(meminfo: MemInfo) -> int:
    """Page cache that is on no LRU list of file pages and is no shared memory: locked, e.g. a model under mlock(2)."""
    cached, shared, reclaimable = meminfo.cached_bytes, meminfo.shared_bytes, meminfo.reclaimable_file_bytes
    if cached is None or shared is None or reclaimable is None:
        return meminfo.mlocked_bytes or 0
    locked = cached + (meminfo.buffers_bytes or 0) - shared - reclaimable
    return max(0, min(locked, meminfo.unevictable_bytes or 0))


def _cgroup_room(cgroup: CgroupMemory, meminfo: MemInfo | None) -> Room | None:
    limits = [limit for limit in (cgroup.limit_bytes, cgroup.high_bytes) if limit is not None]
    unreclaimable = _cgroup_unreclaimable(cgroup)
    if not limits or unreclaimable is None:
        return None
    swapped = cgroup.swap_bytes or 0
    machine_swap_left = (meminfo.swap_free_bytes or 0) if meminfo is not None else 0
    allowed = machine_swap_left if cgroup.swap_limit_bytes is None else max(0, cgroup.swap_limit_bytes - swapped)
    file_bytes, shared = cgroup.file_bytes, cgroup.shared_bytes or 0
    return Room(
        scope="cgroup",
        limit_bytes=min(limits),
        unreclaimable_bytes=unreclaimable,
        swapped_bytes=swapped,
        swap_left_bytes=min(allowed, machine_swap_left),
        file_cache_bytes=None if file_bytes is None else max(0, file_bytes - shared),
    )


def _cgroup_unreclaimable(cgroup: CgroupMemory) -> int | None:
    if cgroup.current_bytes is not None and cgroup.reclaimable_file_bytes is not None:
        reclaimable = cgroup.reclaimable_file_bytes + (cgroup.reclaimable_slab_bytes or 0)
        return max(0, cgroup.current_bytes - reclaimable)
    if cgroup.anonymous_bytes is None:
        return None
    return cgroup.anonymous_bytes + (cgroup.shared_bytes or 0) + (cgroup.kernel_bytes or 0)
