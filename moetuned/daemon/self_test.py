"""The self-test: what actions of this config need is rehearsed at start and whenever they need something else, in a short process of its own.

It inherits the sandbox that the daemon runs in. What is refused turns its action off before the day it is needed, and is told once; it is tried again now
and then, so that the action comes back by itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping

import msgspec

from moetuned.daemon.paths import Paths
from moetuned.daemon.settings import Settings
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide.capabilities import lines_of, refused, rehearsal_facts, turned_off, with_allowed
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.clock import Clock
from moetuned.host.rehearsed import rehearsed
from moetuned.host.unified_cgroup import is_of_daemon
from moetuned.schema.capability import Action, Capabilities, Capability, RehearsalFacts, TurnedOff
from moetuned.schema.config import Config
from moetuned.schema.tunable import PlannedStep

log = logging.getLogger(__name__)

AGAIN_SECONDS = 600.0
"""What was refused is tried again so often: a disk has room again, a package was installed."""
_KEY = "rehearsing what actions need"


class SelfTest:
    """Belongs to the loop's thread; the rehearsing is done in a lane."""

    def __init__(
        self,
        workers: Workers,
        clock: Clock,
        changed: Callable[[], None],
        rehearse: Callable[[RehearsalFacts], tuple[Capability, ...]] | None = None,
        own_cgroup: Callable[[], str | None] = lambda: memory_cgroup(os.getpid()).directory,
    ) -> None:
        """`changed` is called in the loop each time that something came of it. `rehearse` None: the real thing."""
        self._workers = workers
        self._clock = clock
        self._changed = changed
        self._rehearse = rehearse or rehearsed
        self._own_cgroup = own_cgroup
        self._facts: RehearsalFacts | None = None
        self._next: RehearsalFacts | None = None
        self._again_at = 0.0
        """When what is refused is tried again, or all of it where nothing is known, monotonic seconds."""
        self.answer = Capabilities(detail="not rehearsed yet")
        """What everybody is shown."""
        self.off: tuple[TurnedOff, ...] = ()
        self.cgroups: dict[str, str] = {}
        """Where backends run, or last did."""

    @property
    def refused_files(self) -> Mapping[str, str]:
        """Files of settings that cannot be written from here, and why."""
        settings = (one for one in self.off if one.action is Action.CHANGE_SETTING and one.subject is not None)
        return {one.subject or "": f"turned off: {one.why}" for one in settings}

    def tick(
        self, running: Mapping[str, str | None], config: Config, paths: Paths, steps: Iterable[PlannedStep]
    ) -> None:
        """Rehearse where a backend runs elsewhere than before (`running`: cgroups by name), and now and then what was refused."""
        if self.follow_cgroups(running):
            self.follow(config, paths, steps)
        if self._facts is None or self._clock.monotonic() < self._again_at:
            return
        if self.answer.state == "failed":
            self._try_whole_again(self._facts)
            return
        only = refused(self.answer.capabilities)
        again = msgspec.structs.replace(self._facts, only=only)
        if not only or self._workers.submit(Lane.REHEARSE, _KEY, lambda: self._rehearse(again), self._tried_again):
            self._again_at = self._clock.monotonic() + AGAIN_SECONDS

    def _try_whole_again(self, facts: RehearsalFacts) -> None:
        """The process that rehearses could not be started, or died: what kept it from that (memory, a full process table) may be over."""
        if self._workers.submit(Lane.REHEARSE, _KEY, lambda: self._rehearse(facts), self._done):
            self._again_at = self._clock.monotonic() + AGAIN_SECONDS

    def follow_cgroups(self, running: Mapping[str, str | None]) -> bool:
        """Note where backends of the config run, by name; whether one runs elsewhere than before. What has ended is known to have run there.

        A backend that is started passes through the daemon's own cgroup, which is tried for those that are nowhere else anyway.
        """
        names = () if self._facts is None else (one.name for one in self._facts.backends)
        moved = {name: found for name in names if (found := running.get(name)) not in (None, self.cgroups.get(name))}
        own = self._own_cgroup() if moved else None
        new = {name: found for name, found in moved.items() if found is not None and not is_of_daemon(found, own)}
        self.cgroups = {**self.cgroups, **new}
        return bool(new)

    @property
    def pending(self) -> bool:
        """Whether nothing is known yet."""
        return self.answer.state == "pending"

    def follow(self, config: Config, paths: Paths, steps: Iterable[PlannedStep]) -> None:
        """Rehearse what this config needs, unless that was done. `steps`: of the tuning plan."""
        directories = paths.state_directory or ".", paths.runtime_directory or "."
        self.consider(rehearsal_facts(config, *directories, steps, self.cgroups))

    def forget(self) -> None:
        """Rehearse at the next look, also for the same facts: the machine may be another one by now."""
        self._facts = None

    def consider(self, facts: RehearsalFacts) -> None:
        """Rehearse, unless that was done for the same facts."""
        if facts == self._facts:
            return
        if not self._workers.submit(Lane.REHEARSE, _KEY, lambda: self._rehearse(facts), self._done):
            self._next = facts  # one is under way
            return
        self._facts, self._next = facts, None

    def with_off(self, settings: Settings) -> Settings:
        """The settings with what is turned off."""
        return msgspec.structs.replace(settings, off=self.off)

    def _done(self, found: tuple[Capability, ...] | None, error: BaseException | None) -> None:
        wall = self._clock.wall()
        self._again_at = self._clock.monotonic() + AGAIN_SECONDS
        if found is None:
            text = str(error)
            if (self.answer.state, self.answer.detail) != ("failed", text):  # the same again is no news
                log.warning("what actions may need is not known, so none is turned off: %s", text)
            self._take(Capabilities("failed", text, wall_seconds=wall))
        else:
            seconds = sum(one.seconds for one in found)
            text = f"{len(found)} things rehearsed in {seconds:.1f} s of processes of their own"
            self._take(Capabilities("done", text, wall_seconds=wall, capabilities=found))
        self._go_on()

    def _tried_again(self, found: tuple[Capability, ...] | None, error: BaseException | None) -> None:
        if found is None:
            log.debug("what was refused could not be tried again: %s", error)
        else:
            known = with_allowed(self.answer.capabilities, found)
            if known != self.answer.capabilities:
                self._take(msgspec.structs.replace(self.answer, capabilities=known, wall_seconds=self._clock.wall()))
        self._go_on()

    def _take(self, answer: Capabilities) -> None:
        before, self.off = self.off, turned_off(answer.capabilities)
        self.answer = msgspec.structs.replace(answer, cannot=lines_of(self.off))
        for line in lines_of(_without(self.off, before)):
            log.warning("cannot %s", line)
        for line in lines_of(_without(before, self.off)):
            log.info("no longer turned off: %s", line)
        self._changed()

    def _go_on(self) -> None:
        if self._next is not None:
            self.consider(self._next)


def _without(some: Iterable[TurnedOff], others: Iterable[TurnedOff]) -> list[TurnedOff]:
    known = {one.text for one in others}
    return [one for one in some if one.text not in known]


def refused_swap(test: SelfTest) -> Mapping[Action, str] | None:
    """What of swap cannot be made, and why; None: that is not known yet."""
    if test.pending:
        return None
    return {one.action: f"turned off: {one.why}" for one in test.off if one.action in (Action.SWAP_FILE, Action.ZRAM)}
