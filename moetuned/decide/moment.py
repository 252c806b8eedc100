"""One sample as far as it concerns one backend, with the values that signals ask of every moment of the last minute.

Those are worked out once, when the moment is made: a tick asks some sixty moments a backend for them, and by the next tick nothing of
the minute is left in the CPU's caches, so that following four references for each costs more than all other arithmetic.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.memory_headroom import Room, rooms
from moetuned.schema.sample import BackendHttp, BackendSample, MachineSample


class Moment(msgspec.Struct, frozen=True):
    """`cache_bytes`: page cache it lives in, without shared memory. `busy_slots`: that work on a request. `resident_bytes`: of its
    model, where it was scanned. `loads`: it says that it loads its model. `rooms`: every limit that is known, see `memory_headroom`. Made by `moment_of`.
    """

    at_seconds: float
    machine: MachineSample
    backend: BackendSample
    cache_bytes: int | None
    busy_slots: int | None
    resident_bytes: int | None
    loads: bool
    rooms: tuple[Room, ...]


def moment_of(at_seconds: float, machine: MachineSample, backend: BackendSample) -> Moment:
    """The moment at `at_seconds` (monotonic)."""
    return Moment(
        at_seconds=at_seconds,
        machine=machine,
        backend=backend,
        cache_bytes=_cache_bytes(machine, backend),
        busy_slots=None if backend.http is None else busy_in(backend.http),
        resident_bytes=None if backend.residency is None else backend.residency.resident_bytes,
        loads=backend.http is not None and backend.http.health == "loading",
        rooms=rooms(machine, backend),
    )


def _cache_bytes(machine: MachineSample, backend: BackendSample) -> int | None:
    """Its cgroup's, without one the machine's."""
    cgroup = backend.cgroup
    if cgroup is not None:
        return None if cgroup.file_bytes is None else max(0, cgroup.file_bytes - (cgroup.shared_bytes or 0))
    meminfo = machine.meminfo
    if meminfo is None or meminfo.cached_bytes is None:
        return None
    return max(0, meminfo.cached_bytes - (meminfo.shared_bytes or 0))


def busy_in(http: BackendHttp) -> int | None:
    """Slots that work on a request: from /slots, else from /metrics; None: unknown."""
    if http.slots is not None:
        busy = 0
        for slot in http.slots:
            if slot.processing is None:
                break
            busy += slot.processing
        else:
            return busy
    return None if http.requests_processing is None else round(http.requests_processing)
