"""Keeps a PSI trigger for the memory of each backend: on its own v2 cgroup, else on the machine."""

from __future__ import annotations

import logging
import os
import selectors
from collections.abc import Callable, Iterable

from moetuned.daemon.loop import Loop
from moetuned.daemon.watched import Watched
from moetuned.host.clock import Clock
from moetuned.host.pressure_trigger import CGROUP_FILE, MACHINE_FILE, PressureTrigger, TriggerError

log = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 300.0
SOON_SECONDS = 1.0


class PressureWatch:
    """Belongs to the loop's thread. `told` counts how often the kernel said that tasks stall."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        on_pressure: Callable[[], None],
        make: Callable[[str], PressureTrigger] = PressureTrigger,
    ) -> None:
        """`on_pressure` is called in the loop. `make`: for tests."""
        self._loop = loop
        self._clock = clock
        self._on_pressure = on_pressure
        self._make = make
        self._triggers: dict[str, PressureTrigger] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        self._unwatched = 0
        self.told = 0

    def follow(self, backends: Iterable[Watched]) -> None:
        """Watch the memory of those that run, nothing else."""
        wanted: set[str] = set()
        for watched in backends:
            if watched.process is not None:
                wanted.add(self._place(watched))
        for path in [path for path in self._triggers if path not in wanted]:
            self._drop(path)
        for path in wanted - self._triggers.keys():
            self._begin(path)
        self._unwatched = len(wanted - self._triggers.keys())
        if not wanted:
            self._refused.clear()

    @property
    def active(self) -> bool:
        """Whether a stall of any running backend wakes the loop within a second."""
        watched = self._triggers.values()
        return bool(watched) and self._unwatched == 0 and all(one.window_seconds <= SOON_SECONDS for one in watched)

    @property
    def text(self) -> str:
        """What wakes the loop, for people."""
        if not self._triggers and not self._refused:
            return "no backend runs"
        parts = [f"{path} (stalls within {one.window_seconds:g} s)" for path, one in sorted(self._triggers.items())]
        refused = [f"none: {why}" for _, why in self._refused.values()] if not self._triggers else []
        return "; ".join((*parts, *refused))

    def close(self) -> None:
        """Give all back."""
        for path in list(self._triggers):
            self._drop(path)

    def _place(self, watched: Watched) -> str:
        cgroup = watched.cgroup
        if cgroup.version == 2 and cgroup.directory is not None:
            path = os.path.join(cgroup.directory, CGROUP_FILE)
            if not self._is_refused(path):
                if path not in self._triggers:
                    self._begin(path)
                if path in self._triggers:
                    return path
        return MACHINE_FILE

    def _is_refused(self, path: str) -> bool:
        return path in self._refused and self._clock.monotonic() < self._refused[path][0]

    def _begin(self, path: str) -> None:
        if path in self._triggers or self._is_refused(path):
            return
        try:
            trigger = self._make(path)
        except TriggerError as error:
            why = error.strerror or str(error)
            if path not in self._refused:
                log.info("no PSI trigger, looking at every tick instead: %s", why)
            self._refused[path] = (self._clock.monotonic() + TRY_AGAIN_SECONDS, why)
            return
        self._refused.pop(path, None)
        self._triggers[path] = trigger
        self._loop.add(trigger.fileno(), selectors.EVENT_READ, lambda _events: self._happened(path))
        log.info("PSI trigger on %s: stalls within %g s wake the loop", path, trigger.window_seconds)

    def _happened(self, path: str) -> None:
        trigger = self._triggers.get(path)
        if trigger is None:
            return
        if trigger.is_gone():
            log.debug("%s is gone", path)
            self._drop(path)
        else:
            self.told += 1
        self._on_pressure()

    def _drop(self, path: str) -> None:
        trigger = self._triggers.pop(path)
        self._loop.remove(trigger.fileno())
        trigger.close()
