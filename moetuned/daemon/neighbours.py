"""Who else uses the disks and the memory: looks at all processes now and then, and names who it was in the events that ask it.

Looks are cheap (two small files a process) and seldom: at most 0.05 % of a core, each 30 s or less often, while a backend runs; and one
more when an event asks. They run off the loop, so an event that asks waits for its answer for a moment; it is told without one
rather than late.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from moetuned.daemon.announcer import Announcer
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import neighbours as deciding
from moetuned.decide.detector import Begun
from moetuned.decide.neighbours import Finding, Look, Person, Seen
from moetuned.host.clock import Clock
from moetuned.host.process_looks import Who, proc_directory
from moetuned.host.top_growers import Growers
from moetuned.host.top_readers import Readers
from moetuned.schema.event import EventName
from moetuned.schema.neighbour import Neighbour
from moetuned.schema.sample import MachineSample
from moetuned.schema.units import format_bytes, format_duration
from moetuned.schema.verdict import MemoryState, Phase, Reason

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
CPU_SHARE = 0.0005
ASK_AGAIN_SECONDS = 60.0
WAIT_SECONDS = 2.5
"""An event waits for its answer for so long at most."""
READ_WINDOW_SECONDS = 300.0
GROWTH_WINDOW_SECONDS = 900.0
SHOWN_SECONDS = 300.0
LEAST_BYTES = 64 << 20
LEAST_SHARE = 0.1
"""Who took less than this share of what is missing did not do it."""
MUCH_FREE_RATIO = 0.05
"""With more of the machine's memory free than this nobody outside takes page cache from a cgroup with a limit of its own."""
OTHERS_BYTES_PER_SECOND = 50e6
KEPT_LOOKS = 40
KEPT_PROCESSES = 16
"""Of each backend: more than that are not started within the window of the reads."""
URGENT_SECONDS = 10.0
"""With memory full sooner than this nobody waits for a name."""
_ASKING = frozenset({EventName.CACHE_EVICTED, EventName.THRASH_BEGIN, EventName.MEMORY_NEAR_LIMIT})
_OF_MEMORY = frozenset({EventName.MEMORY_NEAR_LIMIT, EventName.MEMORY_RECOVERED})
_OF_PAGING = frozenset({EventName.CACHE_EVICTED, EventName.THRASH_BEGIN, EventName.THRASH_END})
_KEY = "looking at who else reads and grows"


class Looked(msgspec.Struct, frozen=True):
    """A look and what it cost."""

    look: Look
    cpu_seconds: float


class _Held(msgspec.Struct, frozen=True):
    watched: Watched
    begun: Begun
    until: float


class Looker:
    """Looks at all processes; remembers the counters of the last time. Used by one thread at a time."""

    def __init__(self, clock: Clock, root: str = "/") -> None:
        self._clock = clock
        self._root = root
        self._readers = Readers()
        self._growers = Growers()
        self._last: float | None = None

    def look(self) -> Looked:
        """One look. Raises OSError when there is no /proc."""
        began = time.thread_time()
        now, since = self._clock.monotonic(), self._last
        with proc_directory(self._root) as proc:
            pids = proc.pids()
            read = self._readers.look(proc, pids, now)
            held = self._growers.look(proc, pids)
        self._last = now
        seen = (
            *(Seen(_person(one.who), read_bytes=one.read_bytes) for one in read),
            *(Seen(_person(one.who), anonymous_bytes=one.anonymous_bytes) for one in held),
        )
        look = Look(now, self._clock.wall(), since, seen, self._readers.unseen)
        return Looked(look, time.thread_time() - began)


class Neighbours:
    """Belongs to the loop's thread."""

    def __init__(
        self, clock: Clock, workers: Workers, announcer: Announcer, look: Callable[[], Looked] | None = None
    ) -> None:
        self._clock = clock
        self._workers = workers
        self._announcer = announcer
        self._look = Looker(clock).look if look is None else look
        self._looks: deque[Look] = deque(maxlen=KEPT_LOOKS)
        self._next: float | None = None
        self._next_question: float | None = None
        self._held: list[_Held] = []
        self._asking: list[Watched] = []
        self._shown_at: dict[str, float] = {}
        self._own: dict[str, deque[tuple[int, int]]] = {}
        """The last processes that each backend was, by its key."""
        self._machine = MachineSample()
        self._backends: tuple[Watched, ...] = ()
        self.cpu_seconds = 0.0
        """What all looks cost so far."""

    def tick(self, backends: Sequence[Watched], machine: MachineSample, now: float) -> None:
        """Look when it is time, tell what waited too long, show no longer what is old."""
        self._machine = machine
        self._backends = tuple(backends)
        self._remember(backends)
        for held in [one for one in self._held if now >= one.until]:
            self._held.remove(held)
            self._say(held.watched, held.begun)
        for held in [one for one in self._held if _is_urgent(one.watched, one.begun)]:
            self._held.remove(held)
            self._say(held.watched, self._with_names(held.watched, held.begun, now))
        running = [watched for watched in backends if watched.process is not None]
        for watched in backends:
            if now - self._shown_at.get(watched.key, now) > SHOWN_SECONDS:
                watched.neighbours = ()
                self._shown_at.pop(watched.key, None)
        if not running:
            self._next = None
            return
        if self._next is None or now >= self._next:
            self._ask(now)
        curious = [watched for watched in running if _others_read(watched)]
        if curious and (self._next_question is None or now >= self._next_question):
            self._next_question = now + ASK_AGAIN_SECONDS
            self._asking = curious
            self._ask(now)

    def tell(self, watched: Watched, begun: Begun, now: float) -> None:
        """Announce what began; one that somebody else may have caused as soon as it is known who that was."""
        # What ends or follows upon one that still waits must not come before it; memory and paging are two matters.
        other = _OF_PAGING if begun.name in _OF_MEMORY else _OF_MEMORY if begun.name in _OF_PAGING else frozenset()
        self._settle([one for one in self._held if one.watched is watched and one.begun.name not in other])
        if _is_urgent(watched, begun):
            self._say(watched, self._with_names(watched, begun, now))
        elif begun.name in _ASKING:
            self._held.append(_Held(watched, begun, now + WAIT_SECONDS))
            self._ask(now)
        else:
            self._say(watched, begun)

    def settle(self, watched: Watched) -> None:
        """Tell what still waits of this backend: something that follows upon it is to be said now."""
        self._settle([one for one in self._held if one.watched is watched])

    def _settle(self, waiting: Sequence[_Held]) -> None:
        for held in waiting:
            self._held.remove(held)
            self._say(held.watched, held.begun)

    @property
    def waiting(self) -> bool:
        """Whether an event waits to be told."""
        return bool(self._held)

    def flush(self) -> None:
        """Tell what still waits: the daemon ends."""
        for held in self._held:
            self._say(held.watched, held.begun)
        self._held = []

    def _say(self, watched: Watched, begun: Begun) -> None:
        self._announcer.say(begun.name, watched.name, begun.message, begun.reasons)

    def _ask(self, now: float) -> None:
        self._next = now + EVERY_SECONDS
        self._workers.submit(Lane.WORK, _KEY, self._look, self._looked)

    def _looked(self, looked: Looked | None, error: BaseException | None) -> None:
        now = self._clock.monotonic()
        if looked is None:
            log.info("cannot look at other processes: %s", error)
        else:
            self._looks.append(looked.look)
            self.cpu_seconds += looked.cpu_seconds
            self._next = now + max(EVERY_SECONDS, looked.cpu_seconds / CPU_SHARE)
        held, self._held = self._held, []
        asking, self._asking = self._asking, []
        for one in held:
            self._say(one.watched, self._with_names(one.watched, one.begun, now))
        for watched in asking:
            self._show(watched, self._found(watched, now, LEAST_BYTES, whole_machine=True), now)

    def _with_names(self, watched: Watched, begun: Begun, now: float) -> Begun:
        size = watched.facts.model_bytes or 0
        lost = max((reason.value or 0.0 for reason in begun.reasons if reason.signal in _LOSSES), default=0.0)
        found = self._found(
            watched, now, max(LEAST_BYTES, LEAST_SHARE * lost * size),
            whole_machine=False, of_memory=begun.name is EventName.MEMORY_NEAR_LIMIT,
        )  # fmt: skip
        self._show(watched, found, now)
        if begun.name is not EventName.CACHE_EVICTED and not found:
            return begun
        if found:
            text = "meanwhile " + ", and ".join(one.text for one in found)
        elif not self._looks or self._looks[-1].since_seconds is None:
            return begun
        elif self._looks[-1].unseen:
            text = f"who did it cannot be seen: {_not_shown(self._looks[-1].unseen)}"
        else:
            text = "nothing that runs now read or grew that much, so it was a process that has ended since"
        reasons = tuple(
            Reason("neighbours", f"neighbour_{one.did}_bytes", float(one.bytes), None, one.seconds, one.text)
            for one in found
        )
        return Begun(begun.name, f"{begun.message}; {text}", (*begun.reasons, *reasons))

    def _remember(self, backends: Sequence[Watched]) -> None:
        """What a backend read before it was restarted, its model for one, nobody else took from it."""
        self._own = {one.key: self._own.get(one.key, deque(maxlen=KEPT_PROCESSES)) for one in backends}
        for watched in backends:
            for process in (watched.process, watched.main):
                if process is not None and (key := (process.pid, process.start_ticks)) not in self._own[watched.key]:
                    self._own[watched.key].append(key)

    def _found(
        self, watched: Watched, now: float, least_bytes: float, *, whole_machine: bool, of_memory: bool = False
    ) -> tuple[Neighbour, ...]:
        """`of_memory`: who took memory that the kernel cannot take back, which who only reads does not."""
        looks = tuple(self._looks)
        without = {os.getpid()} | {one.pid for one in (watched.process, watched.main) if one is not None}
        inside = None if whole_machine else _alone_in(watched, self._machine, at_its_limit=of_memory)
        readers = () if of_memory else deciding.readers(looks, now - READ_WINDOW_SECONDS)
        findings = (*deciding.growers(looks, now - GROWTH_WINDOW_SECONDS), *readers)
        others = {one.process.pid for one in self._backends if one is not watched and one.process is not None}
        own = self._own.get(watched.key, ())
        findings = tuple(one for one in findings if one.who.key not in own)
        relevant = deciding.relevant(findings, without, inside, least_bytes, others)
        return tuple(neighbour(one, self._clock.wall()) for one in relevant)

    def _show(self, watched: Watched, found: tuple[Neighbour, ...], now: float) -> None:
        watched.neighbours = found
        self._shown_at[watched.key] = now


_LOSSES = ("resident_ratio", "cache_lost_ratio")


def neighbour(found: Finding, wall_seconds: float) -> Neighbour:
    """As it is shown: "rsync (pid 812, backup.service) read 42 GiB in the last 5 min", "firefox (pid 7) grew 6.0 GiB since 14:02"."""
    who = found.who
    details = ", ".join(part for part in (None if who.pid is None else f"pid {who.pid}", who.unit) if part)
    name = f"{who.name} ({details})" if details else who.name
    if found.did == deciding.GREW:
        since = time.strftime("%H:%M", time.localtime(wall_seconds - found.seconds))
        did = f"grew {format_bytes(found.bytes)} since {since}"
    else:
        did = f"read {format_bytes(found.bytes)} in the last {format_duration(found.seconds)}"
    return Neighbour(who.name, found.did, found.bytes, found.seconds, who.pid, who.unit, f"{name} {did}")


def _not_shown(programs: int) -> str:
    """Also root may not see all: not those with more capabilities than it has (ptrace(2), access mode checking)."""
    count = f"{programs} program{'' if programs == 1 else 's'}"
    remedy = "" if os.geteuid() == 0 else " (to root it is)"
    return f"what {count} read is not shown to moetuned{remedy}"


def _person(who: Who | None) -> Person:
    if who is None:
        return Person((0, 0), None, "processes that have ended since")
    return Person((who.pid, who.start_ticks), who.pid, who.name, who.unit, who.parent, who.cgroups)


def _is_urgent(watched: Watched, begun: Begun) -> bool:
    """Whether a word about memory cannot wait for anything."""
    if begun.name is not EventName.MEMORY_NEAR_LIMIT:
        return False
    seconds = watched.memory.seconds_to_limit
    return watched.verdict.memory is MemoryState.CRITICAL or (seconds is not None and seconds < URGENT_SECONDS)


def _alone_in(watched: Watched, machine: MachineSample, *, at_its_limit: bool) -> str | None:
    """The cgroup whose limit the backend is at, unless the machine itself has no memory left; None: anybody may take its memory.

    `at_its_limit`: it is that limit that is near, so what the rest of the machine holds is no matter.
    """
    if watched.memory.scope != "cgroup" or watched.cgroup.directory is None:
        return None
    outermost = (watched.cgroup.directory, *watched.cgroup.limited_above)[-1]
    if at_its_limit:
        return outermost
    meminfo = machine.meminfo
    if meminfo is None or meminfo.free_bytes is None or meminfo.total_bytes is None:
        return None
    if meminfo.free_bytes < MUCH_FREE_RATIO * meminfo.total_bytes:
        return None
    return outermost


def _others_read(watched: Watched) -> bool:
    """Whether the disks under its model work for others more than for it, while it works itself."""
    signals = watched.signals
    if signals is None or watched.verdict.phase not in (Phase.PREFILL, Phase.DECODE, Phase.LOADING):
        return False
    device, own = signals.get("device_read_bytes_per_second"), signals.get("process_read_bytes_per_second")
    return device is not None and own is not None and device - own > max(OTHERS_BYTES_PER_SECOND, own)
