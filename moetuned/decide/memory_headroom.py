"""How much room is left before the kernel must kill something: what cannot be reclaimed against its limit.

MemAvailable and the size of the page cache are not the measure: the cache *is* the model. In a cgroup everything but the
page cache on its LRU lists counts (cgroup-v2.rst: the OOM killer comes when nothing is left to reclaim); on the machine
anonymous, shared, locked and unreclaimable kernel memory and huge pages do. What memory.min keeps in cgroups below a limit the kernel
does not take either, page cache or not, but where it is to make room for that limit of the cgroup itself. A limit of a cgroup above is shared with
everything below it, so its own use counts against it. The tightest of them holds.

Memory in swap counts as used: a backend whose memory was pushed out wants it back. `oom_room_bytes` tells apart how much
can still be allocated, swap included, before the OOM killer acts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.decide.kept_cache import kept_below, kept_on_machine
from moetuned.decide.unreclaimable import unreclaimable_bytes
from moetuned.parse.cgroup_names import cgroup_name, container_of
from moetuned.schema.sample import BackendSample, CgroupMemory, KeptMemory, MachineSample, MemInfo
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes

MACHINE = ""
"""The place of the machine's own limit; that of a cgroup is its directory."""
OWN = "own"
"""The place of the backend's own cgroup where its directory is not told."""
NEAR_SHARE = 0.1
"""A limit with less than this share left goes before one that leaves fewer bytes but is far from full."""


class Room(msgspec.Struct, frozen=True, gc=False):
    """Use of one limit, bytes. `place`: whose limit, see MACHINE. `locked_file_bytes`: page cache that is locked, a part of what
    cannot be reclaimed that ends at the size of the files; `kept_bytes`: another such part, page cache that memory.min keeps,
    `own_kept_bytes` of it in the backend's own cgroup. `throttles`: at it the kernel slows down and kills nothing.
    """

    place: str
    limit_bytes: int
    unreclaimable_bytes: int
    swapped_bytes: int
    swap_left_bytes: int
    file_cache_bytes: int | None
    locked_file_bytes: int = 0
    throttles: bool = False
    kept_bytes: int = 0
    own_kept_bytes: int = 0

    @property
    def scope(self) -> str:
        """For MemoryView."""
        return "machine" if self.place == MACHINE else "cgroup"

    @property
    def growing_bytes(self) -> int:
        """What a trend is taken of: all that is in use but page cache."""
        return self.unreclaimable_bytes + self.swapped_bytes - self.locked_file_bytes - self.kept_bytes

    @property
    def headroom_bytes(self) -> int:
        """Limit minus what cannot be reclaimed minus what was swapped out; negative when swap is needed to live."""
        return self.limit_bytes - self.unreclaimable_bytes - self.swapped_bytes

    @property
    def oom_room_bytes(self) -> int:
        """What can still be allocated before the OOM killer acts."""
        return max(0, self.limit_bytes - self.unreclaimable_bytes) + self.swap_left_bytes


def rooms(machine: MachineSample, backend: BackendSample) -> tuple[Room, ...]:
    """Every limit that is known: those of the cgroups above, of its own, of the machine."""
    meminfo, own = machine.meminfo, backend.cgroup
    found = [_cgroup_room(one.memory, meminfo, one.directory) for one in backend.above]
    if own is not None:
        found.append(_cgroup_room(own, meminfo, backend.cgroup_directory or OWN))
    if meminfo is not None:
        found.append(machine_room(meminfo))
    if machine.kept:
        own_directory = backend.cgroup_directory
        return tuple(_with_kept(room, machine.kept, own_directory) for room in found if room is not None)
    return tuple(room for room in found if room is not None)


def _with_kept(room: Room, kept: Sequence[KeptMemory], own_directory: str | None) -> Room:
    """What the cgroups below it keep counts as what cannot be reclaimed; its own does not: it gives way to its own limit."""

    def size(but: str | None) -> int:
        return kept_on_machine(kept, but) if room.place == MACHINE else kept_below(room.place, kept, but)

    found = size(None)
    own = 0 if own_directory is None else found - size(own_directory)
    unreclaimable = room.unreclaimable_bytes + found
    return msgspec.structs.replace(room, unreclaimable_bytes=unreclaimable, kept_bytes=found, own_kept_bytes=own)


def room_at(found: Sequence[Room], place: str) -> Room | None:
    """The limit at one place; None when unknown."""
    for room in found:
        if room.place == place:
            return room
    return None


def tightest_room(machine: MachineSample, backend: BackendSample) -> Room | None:
    """The limit that leaves least; None when none is known."""
    return tightest(rooms(machine, backend))


def tightest(found: Sequence[Room]) -> Room | None:
    """The one that leaves least; None of none. Of those that are near full the one with fewest bytes left."""
    return min(found, key=_tightness, default=None)


def growing_bytes_around(machine: MachineSample, backend: BackendSample) -> int | None:
    """What cannot be reclaimed, and what of it is in swap, in the backend's cgroup, limit or not; without one on the machine."""
    cgroup = backend.cgroup
    if cgroup is None:
        room = None if machine.meminfo is None else machine_room(machine.meminfo)
        return None if room is None else room.growing_bytes
    unreclaimable = unreclaimable_bytes(cgroup)
    if unreclaimable is None:
        return None
    return unreclaimable + (cgroup.swap_bytes or 0) - _locked_in_cgroup(cgroup, unreclaimable)


def _tightness(room: Room) -> tuple[bool, int]:
    return room.headroom_bytes >= NEAR_SHARE * room.limit_bytes, room.headroom_bytes


def smallest_oom_room_bytes(found: Sequence[Room]) -> int | None:
    """What can still be allocated before the OOM killer acts for any of the limits; None when none is known."""
    return min((room.oom_room_bytes for room in found), default=None)


def cgroup_limit_text(backend: BackendSample, limit_bytes: float, headroom_bytes: float) -> str | None:
    """Whose limit this is, where it is that of a cgroup; None: the machine's, or unknown."""
    # What is kept below it, which is not known here, takes of its headroom.
    like = [
        room
        for room in rooms(MachineSample(), backend)
        if room.limit_bytes == round(limit_bytes) and room.headroom_bytes >= headroom_bytes
    ]
    found = min(like, key=lambda room: room.headroom_bytes, default=None)
    return None if found is None else limit_text(found, None, backend)


def limit_text(room: Room, total: int | None, backend: BackendSample) -> str:
    """Whose limit it is, for people: "limit 8.0 GiB of docker container 0123456789ab (the machine has 32 GiB)".

    `total`: RAM of the machine, None: it is not spoken of.
    """
    if room.place == MACHINE:
        return f"the machine's {format_bytes(room.limit_bytes)}"
    own = room.place in (backend.cgroup_directory, OWN)
    name = "its memory cgroup" if room.place == OWN else cgroup_name(room.place)
    inside = container_of(room.place)
    if own and inside is not None and inside != name:
        name = f"{inside} ({name})"
    kind = "memory.high" if room.throttles else "limit"
    text = f"{kind} {format_bytes(room.limit_bytes)} of {name}"
    if not own:
        text += ", which others share"
    if total is not None and room.limit_bytes < total:
        text += f" (the machine has {format_bytes(total)})"
    return text


def memory_view(machine: MachineSample, backend: BackendSample, known: Sequence[Room] | None = None) -> MemoryView:
    """The same for people; says what is unknown. `seconds_to_limit` needs a trend and is left to the caller. `known`: its `rooms`,
    where somebody has them already.
    """
    room, meminfo = tightest_room(machine, backend) if known is None else tightest(known), machine.meminfo
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
        limit_of=limit_text(room, None if meminfo is None else meminfo.total_bytes, backend),
        kept_bytes=room.kept_bytes,
        own_kept_bytes=room.own_kept_bytes,
    )


def memory_under_each(machine: MachineSample, backend: BackendSample) -> tuple[MemoryView, ...]:
    """Memory against every limit that is known, the tightest first. `scope` names each: "machine", or a cgroup's directory."""
    return tuple(
        MemoryView(
            scope=room.place or "machine",
            limit_bytes=room.limit_bytes,
            unreclaimable_bytes=room.unreclaimable_bytes + room.swapped_bytes,
            file_cache_bytes=room.file_cache_bytes,
            headroom_bytes=room.headroom_bytes,
            kept_bytes=room.kept_bytes,
        )
        for room in sorted(rooms(machine, backend), key=_tightness)
    )


def machine_room(meminfo: MemInfo) -> Room | None:
    """The machine's own, without what cgroups keep; None where too little is known."""
    total, anonymous, shared = meminfo.total_bytes, meminfo.anonymous_bytes, meminfo.shared_bytes
    if total is None or anonymous is None or shared is None:
        return None
    swap_total, swap_free = meminfo.swap_total_bytes, meminfo.swap_free_bytes
    locked = _locked_file_bytes(meminfo)
    return Room(
        place=MACHINE,
        limit_bytes=total,
        unreclaimable_bytes=anonymous
        + shared
        + locked
        + (meminfo.slab_unreclaimable_bytes or 0)
        + (meminfo.hugepages_bytes or 0),
        swapped_bytes=0 if swap_total is None or swap_free is None else max(0, swap_total - swap_free),
        swap_left_bytes=swap_free or 0,
        file_cache_bytes=None if meminfo.cached_bytes is None else max(0, meminfo.cached_bytes - shared),
        locked_file_bytes=locked,
    )


def _locked_file_bytes(meminfo: MemInfo) -> int:
    """Page cache that is on no LRU list of file pages and is no shared memory: locked, e.g. a model under mlock(2)."""
    cached, shared, reclaimable = meminfo.cached_bytes, meminfo.shared_bytes, meminfo.reclaimable_file_bytes
    if cached is None or shared is None or reclaimable is None:
        return meminfo.mlocked_bytes or 0
    locked = cached + (meminfo.buffers_bytes or 0) - shared - reclaimable
    return max(0, min(locked, meminfo.unevictable_bytes or 0))


def _cgroup_room(cgroup: CgroupMemory, meminfo: MemInfo | None, place: str) -> Room | None:
    limits = [limit for limit in (cgroup.limit_bytes, cgroup.high_bytes) if limit is not None]
    unreclaimable = unreclaimable_bytes(cgroup)
    if not limits or unreclaimable is None:
        return None
    swapped = cgroup.swap_bytes or 0
    machine_swap_left = (meminfo.swap_free_bytes or 0) if meminfo is not None else 0
    allowed = machine_swap_left if cgroup.swap_limit_bytes is None else max(0, cgroup.swap_limit_bytes - swapped)
    file_bytes, shared = cgroup.file_bytes, cgroup.shared_bytes or 0
    limit = min(limits)
    return Room(
        place=place,
        limit_bytes=limit,
        unreclaimable_bytes=unreclaimable,
        swapped_bytes=swapped,
        swap_left_bytes=min(allowed, machine_swap_left),
        file_cache_bytes=None if file_bytes is None else max(0, file_bytes - shared),
        locked_file_bytes=_locked_in_cgroup(cgroup, unreclaimable),
        throttles=limit == cgroup.high_bytes and limit != cgroup.limit_bytes,
    )


def _locked_in_cgroup(cgroup: CgroupMemory, unreclaimable: int) -> int:
    """Its page cache that is on no LRU list of file pages and is no shared memory."""
    if cgroup.current_bytes is None or cgroup.file_bytes is None or cgroup.reclaimable_file_bytes is None:
        return 0
    locked = cgroup.file_bytes - (cgroup.shared_bytes or 0) - cgroup.reclaimable_file_bytes
    return max(0, min(locked, unreclaimable, cgroup.unevictable_bytes or 0))
