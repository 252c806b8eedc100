"""When warming is to hold still: while the backend itself reads from the disk, and while memory is under pressure.

Imports almost nothing: it runs inside a backend's cgroup. What warming reads is not counted as the backend's (/proc/<pid>/io counts
where a read is started), but a stall may be warming's own: waiting for a page that was evicted not long ago counts as one
(mm/filemap.c folio_wait_bit_common), and so does making room in a full cgroup. So on a stall it stops and listens for a moment
with nothing in flight. Silence means that the stall was its own.

Where only the machine's stalls are counted (cgroup v1), they may be of any program, for hours, and say nothing of the backend. So there
it pauses first and then goes on slowly, unless the backend reads or its cgroup is at its limit.
"""

from __future__ import annotations

import os
from collections import deque

LOOK_SECONDS = 0.05
"""Between two looks at both. A look costs some 20 us."""
WINDOW_SECONDS = 0.25
READ_BYTES = 512 << 10
"""A backend that reads more than this in the window needs the disk."""
STALL_RATIO = 0.05
WORKS_RATIO = 0.2
"""A backend that uses more than this of one core has a request to answer."""
QUIET_SECONDS = 1.0
LISTEN_SECONDS = 0.25
SLOWLY_SECONDS, STILL_SECONDS = 4.0, 2.0
"""Under the machine's pressure: how long it goes on slowly, and how long it holds still before that and in between, so that what it
reads itself is not taken for pressure for ever."""
FIRST_TRUST_SECONDS, LONGEST_TRUST_SECONDS = 0.5, 4.0
"""How long a stall that was its own is taken for its own; twice as long each time."""

_BACKEND_READS = "the backend itself reads from the disk"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class BackendGoneError(Exception):
    """The process that was to be watched is not there; the text is one sentence."""


class Backoff:
    """Decides from two counters. Pure: the time is an argument."""

    def __init__(self) -> None:
        """Nothing has been seen yet."""
        self.stalled = "memory"
        """Whose memory stalls are counted, for the reason."""
        self._seen: deque[tuple[float, int | None, float | None]] = deque()
        self._quiet_since: float | None = None
        self._read_at = self._full_at = float("-inf")
        self._paused_at = float("-inf")
        self.machine_wide = False
        """Whether `stalled` are those of the whole machine, which need not have to do with the backend."""
        self._hits: int | None = None
        self._listens_since: float | None = None
        self._trusts_until = float("-inf")
        self._trust_seconds = FIRST_TRUST_SECONDS
        self._used: deque[tuple[float, float | None]] = deque()
        self.works = True
        """Whether the backend has a request to answer, by the CPU it uses; so taken until it is known."""
        self.reason: str | None = None
        """Why it is paused, or goes on slowly; None: it is not, though it may be listening."""
        self.slowly = False
        """Whether it goes on slowly all the same, with a rest every now and then."""
        self._rests = False

    @property
    def holds(self) -> bool:
        """Whether nothing is to be read now."""
        return (self.reason is not None and (not self.slowly or self._rests)) or self._listens_since is not None

    def step(
        self, now: float, read_bytes: int | None, stalled_seconds: float | None, idle: bool, hits: int | None = None
    ) -> bool:
        """One look; whether to hold still. `read_bytes`: what the backend has read so far; `stalled_seconds`: PSI memory `some` so far.

        `idle`: nothing of warming's own is in flight. `hits`: how often its cgroup was at its limit so far. A counter that is None, or
        went back, says nothing.
        """
        if _grown(self._hits, hits) > 0:
            self._full_at = now
        self._hits = hits
        seen = self._seen
        seen.append((now, read_bytes, stalled_seconds))
        while len(seen) > 2 and now - seen[1][0] >= WINDOW_SECONDS:
            seen.popleft()
        read = _grown(seen[0][1], read_bytes)
        if read > READ_BYTES:
            self._read_at = now
            self._pause(now, _BACKEND_READS)
        elif self._listens_since is not None and not idle:
            self._listens_since = now
            self._forget()
        elif _grown(seen[0][2], stalled_seconds) > STALL_RATIO * WINDOW_SECONDS:
            if self.reason is not None:
                self._quiet_since = now
                # What began the pause may be over long ago; nothing of warming's own is in flight that this could be.
                if idle and now - self._read_at >= QUIET_SECONDS:
                    self.reason = f"{self.stalled} is under pressure"
            elif self._listens_since is not None:
                self._pause(now, f"{self.stalled} is under pressure")
            elif now >= self._trusts_until:
                self._listens_since = now
                self._forget()
        self._go_on(now)
        self._go_slowly(now)
        return self.holds

    def step_work(self, now: float, cpu_seconds: float | None) -> bool:
        """The same for the CPU that the backend has used so far; whether it works. One that is unknown is taken to work."""
        used = self._used
        used.append((now, cpu_seconds))
        while len(used) > 2 and now - used[1][0] >= WINDOW_SECONDS:
            used.popleft()
        seconds = now - used[0][0]
        if cpu_seconds is None or used[0][1] is None:
            self.works = True
        elif seconds >= WINDOW_SECONDS / 2:
            self.works = cpu_seconds - used[0][1] > WORKS_RATIO * seconds
        return self.works

    def _go_slowly(self, now: float) -> None:
        paused = now - self._paused_at
        calm = now - max(self._read_at, self._full_at) >= QUIET_SECONDS
        only_machine = self.machine_wide and self.reason is not None and self.reason != _BACKEND_READS
        self.slowly = only_machine and calm and paused >= STILL_SECONDS
        self._rests = paused % (STILL_SECONDS + SLOWLY_SECONDS) < STILL_SECONDS

    def _pause(self, now: float, reason: str) -> None:
        if self.reason is None:
            self._paused_at = now
        self.reason, self._quiet_since, self._listens_since = reason, now, None
        self._trust_seconds = FIRST_TRUST_SECONDS
        self._forget()

    def _go_on(self, now: float) -> None:
        if self.reason is not None:
            assert self._quiet_since is not None
            if now - self._quiet_since >= QUIET_SECONDS:
                self.reason = self._quiet_since = None
                self._forget()
        elif self._listens_since is not None and now - self._listens_since >= LISTEN_SECONDS:
            self._listens_since = None
            self._trusts_until = now + self._trust_seconds
            self._trust_seconds = min(LONGEST_TRUST_SECONDS, self._trust_seconds * 2)
            self._forget()

    def _forget(self) -> None:
        """Judge only what happens from the last look on."""
        last = self._seen[-1]
        self._seen.clear()
        self._seen.append(last)


class Watch:
    """Reads the counters of a backend."""

    def __init__(self, pid: int, start_ticks: int, cgroup: str | None) -> None:
        """`cgroup`: the directory of its memory cgroup. Raises BackendGoneError."""
        self.backoff = Backoff()
        self.unwatched: list[str] = []
        """What cannot be watched, and why."""
        self.pidfd = _pidfd(pid)
        """Readable when the process has ended; None where the kernel has none."""
        self._pid = pid
        self._io = self._open_io()
        self._pressure = self._open_pressure(cgroup)
        self._limit_hits = _open_limit_hits(cgroup) if self.backoff.machine_wide else None
        # Asked only now: what was opened above is this process's for certain.
        if _start_ticks(pid) != start_ticks:
            raise BackendGoneError(f"process {pid} is no longer the backend")

    def look(self, now: float, idle: bool) -> bool:
        """Whether to hold still now; `idle` as for `Backoff.step`. Raises BackendGoneError."""
        self.backoff.step_work(now, _cpu_seconds(self._pid))
        return self.backoff.step(now, self._read_bytes(), self._stalled_seconds(), idle, self._hits())

    def _hits(self) -> int | None:
        if self._limit_hits is None:
            return None
        descriptor, label = self._limit_hits
        try:
            return _number_after(b"\n" + os.pread(descriptor, 4096, 0), label)
        except OSError:
            return None

    def _read_bytes(self) -> int | None:
        if self._io is None:
            return None
        try:
            text = os.pread(self._io, 4096, 0)
        except OSError as error:
            raise BackendGoneError(f"the backend (process {self._pid}) has ended") from error
        return _number_after(text, b"\nread_bytes: ")

    def _stalled_seconds(self) -> float | None:
        if self._pressure is None:
            return None
        try:
            micros = _number_after(os.pread(self._pressure, 4096, 0), b" total=")
        except OSError:
            return None
        return None if micros is None else micros / 1e6

    def _open_io(self) -> int | None:
        try:
            descriptor = os.open(f"/proc/{self._pid}/io", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            if os.path.exists(f"/proc/{self._pid}"):
                self.unwatched.append("what the backend reads (the kernel does not count it)")
                return None
            raise BackendGoneError(f"there is no process {self._pid}") from error
        except OSError as error:
            self.unwatched.append(f"what the backend reads ({error.strerror})")
            return None
        try:
            os.pread(descriptor, 1, 0)
        except OSError as error:
            os.close(descriptor)
            self.unwatched.append(f"what the backend reads ({error.strerror})")
            return None
        return descriptor

    def _open_pressure(self, cgroup: str | None) -> int | None:
        why = ""
        # cgroup v1 has none of its own: there, anybody's pressure slows it.
        own = [] if cgroup is None else [(f"{cgroup}/memory.pressure", "the cgroup's memory")]
        for path, whose in [*own, ("/proc/pressure/memory", "the machine's memory")]:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                why = str(error.strerror)
                continue
            try:
                os.pread(descriptor, 1, 0)
            except OSError as error:  # psi=0, or switched off for the cgroup.
                os.close(descriptor)
                why = str(error.strerror)
                continue
            self.backoff.stalled = whose
            self.backoff.machine_wide = path == "/proc/pressure/memory"
            return descriptor
        self.unwatched.append(f"memory pressure ({why})")
        return None


def _open_limit_hits(cgroup: str | None) -> tuple[int, bytes] | None:
    """What counts how often a cgroup was at its limit, and what stands before the number; None where nothing does."""
    for path, label in (
        () if cgroup is None else ((f"{cgroup}/memory.failcnt", b"\n"), (f"{cgroup}/memory.events", b"\nmax "))
    ):
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC), label
        except OSError:
            continue
    return None


def _grown(before: float | None, after: float | None) -> float:
    return 0 if before is None or after is None else max(0, after - before)


def _number_after(text: bytes, label: bytes) -> int | None:
    """The first number that follows a label; None when there is none."""
    digits = text.partition(label)[2].split(maxsplit=1)
    return int(digits[0]) if digits and digits[0].isdigit() else None


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise BackendGoneError(f"there is no process {pid}") from error
    except OSError:
        return None


def _start_ticks(pid: int) -> int | None:
    return _stat_field(pid, 22)


def _cpu_seconds(pid: int) -> float | None:
    user, system = _stat_field(pid, 14), _stat_field(pid, 15)
    return None if user is None or system is None else (user + system) / _TICKS_PER_SECOND


def _stat_field(pid: int, number: int) -> int | None:
    """A field of /proc/<pid>/stat by its number in proc_pid_stat(5); the name of the program, field 2, may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[number - 3])
    except (OSError, IndexError, ValueError):
        return None
