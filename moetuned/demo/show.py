"""The demo's scenes: what is done, what must be seen, and within which time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from moetuned.demo.daemon_process import DaemonProcess
from moetuned.demo.screen import Screen
from moetuned.demo.visitor import Visitor
from moetuned.schema.event import Event, EventName
from moetuned.schema.snapshot import BackendView, Snapshot
from moetuned.schema.verdict import MemoryState, Paging, Phase

LOOK_SECONDS = 0.25


class NotSeen(Exception):  # noqa: N818  an outcome of the show, not a fault of the program
    """What had to be seen was not, within its time."""


class Observed(msgspec.Struct):
    """What was seen, for the summary. Times are Unix seconds; `facts` are lines as they are printed."""

    facts: list[tuple[str, str]] = []
    read_bytes: dict[int, int] = {}

    def fact(self, name: str, value: str) -> None:
        """One line of the summary."""
        self.facts.append((name, value))

    @property
    def total_read_bytes(self) -> int:
        """What the backend's processes have read from the disk."""
        return sum(self.read_bytes.values())


class Show:
    """Looks at the daemon, draws, and waits for what must be seen."""

    def __init__(self, daemon: DaemonProcess, screen: Screen, backend: str, hook_log: str) -> None:
        self._daemon = daemon
        self._screen = screen
        self._backend = backend
        self._hook_log = hook_log
        self.observed = Observed()
        self.snapshot: Snapshot | None = None
        self.phases: set[Phase] = set()
        self.pagings: set[Paging] = set()
        self.visitor: Visitor | None = None
        self._events: dict[str, Event] = {}  # kept here: a daemon that is killed forgets them
        self._pid_before_kill: int | None = None
        self._last_pid: int | None = None

    @property
    def view(self) -> BackendView | None:
        """The backend as last seen."""
        snapshot = self.snapshot
        return None if snapshot is None else next((one for one in snapshot.backends if one.name == self._backend), None)

    def look(self) -> None:
        """Look once and draw."""
        if self._daemon.keep_alive():
            self._pid_before_kill = self._last_pid
            self._screen.note("the daemon was killed; it is started again")
        snapshot = self._daemon.snapshot()
        if snapshot is not None:
            self.snapshot = snapshot
            self._events.update((one.id, one) for one in snapshot.events)
        view = self.view if snapshot is not None else None
        if view is not None:
            self.phases.add(view.verdict.phase)
            self.pagings.add(view.verdict.paging)
            self._follow(view)
        self._screen.draw(snapshot)

    def _follow(self, view: BackendView) -> None:
        if view.pid is None:
            return
        if self._pid_before_kill is not None:
            same = view.pid == self._pid_before_kill
            found = "found the backend again" if same else "has ANOTHER backend"
            self._screen.note(f"the new daemon {found} (process {view.pid})")
            self.observed.fact("after kill -9 of the daemon", f"the next one {found}: process {view.pid}")
            self._pid_before_kill = None
        self._last_pid = view.pid
        read = process_read_bytes(view.pid)
        if read is not None:
            self.observed.read_bytes[view.pid] = read

    def wait(self, what: str, seconds: float, seen: Callable[[], bool]) -> float:
        """Look until `seen`, at most this long; the time it took in seconds. Raises NotSeen."""
        begun = time.monotonic()
        while True:
            self.look()
            if seen():
                took = time.monotonic() - begun
                self._screen.seen(f"{what} (after {took:.0f} s)")
                return took
            if time.monotonic() - begun > seconds:
                raise NotSeen(f"{what}: not seen within {seconds:.0f} s")
            time.sleep(LOOK_SECONDS)

    def hold(self, seconds: float) -> None:
        """Go on looking for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(LOOK_SECONDS)

    def event(self, name: EventName, after_wall: float) -> Event | None:
        """The first event of that name that began after `after_wall`."""
        return next((one for one in self._events.values() if one.name == name and one.wall_seconds >= after_wall), None)

    def thrash_is_over(self, begun_wall: float) -> bool:
        """Whether it ended; a daemon that was killed meanwhile can only be asked how it stands now."""
        view = self.view
        calm = view is not None and view.verdict.paging == Paging.STEADY
        return self.event(EventName.THRASH_END, begun_wall) is not None or (self._daemon.killed > 0 and calm)

    def is_restarted(self, after_wall: float, context_before: int | None) -> bool:
        """Whether the backend was restarted; a daemon that was killed while it did so tells of it only by the context."""
        view = self.view
        now = None if view is None else view.context.now
        up = view is not None and view.verdict.phase in (Phase.DECODE, Phase.PREFILL, Phase.IDLE)
        shorter = up and now is not None and context_before is not None and now < context_before
        return self.event(EventName.BACKEND_RESTARTED, after_wall) is not None or (self._daemon.killed > 0 and shorter)

    def hook_ran(self, name: EventName) -> bool:
        """Whether the hook wrote its line."""
        try:
            with open(self._hook_log, encoding="utf-8") as log:
                return any(line.startswith(name) for line in log)
        except FileNotFoundError:
            return False

    def is_calm(self) -> bool:
        """Whether the backend answers, steadily, with memory to spare."""
        view = self.view
        return (
            view is not None
            and view.verdict.paging == Paging.STEADY
            and view.verdict.phase in (Phase.DECODE, Phase.PREFILL, Phase.IDLE)
            and view.verdict.memory == MemoryState.OK
        )

    def wait_calm(self, what: str, seconds: float) -> float:
        """Wait until it is calm and has answered twice since now."""
        visitor = self.visitor
        begun = 0 if visitor is None else visitor.answered
        return self.wait(what, seconds, lambda: self.is_calm() and (visitor is None or visitor.answered >= begun + 2))


def process_read_bytes(pid: int) -> int | None:
    """Bytes a process has read from disk; None when it is gone or may not be looked at."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("read_bytes:")), None)
    except OSError:
        return None


def settings_now(paths: tuple[str, ...]) -> dict[str, str]:
    """The settings the demo may change, as they stand."""
    values = {}
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                values[path] = file.read()
    return values
