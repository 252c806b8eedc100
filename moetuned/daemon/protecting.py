"""Locks what every token needs of a supervised backend's model in memory, as the config says, and lets go before memory is short.

A process inside the backend's cgroup holds the lock (host/memory_lock.py); its end releases everything.
"""

from __future__ import annotations

import logging
import selectors

from moetuned.daemon.loop import Loop
from moetuned.daemon.settings import Settings
from moetuned.daemon.turned_off import cannot
from moetuned.daemon.watched import Watched
from moetuned.decide.protection import PAGE_BYTES, may_try_again, protection, release_reason
from moetuned.gguf.experts import other_ranges
from moetuned.host.clock import Clock
from moetuned.host.fs import RealFS
from moetuned.host.memory_lock import MemoryLock, lock_in_cgroup
from moetuned.host.processes import ProcessIdentity, mapped_models
from moetuned.host.spawn import StartError
from moetuned.host.unified_cgroup import protected_bytes
from moetuned.schema.capability import Action
from moetuned.schema.config import Protect
from moetuned.schema.snapshot import ProtectView
from moetuned.schema.verdict import MemoryState, Phase

log = logging.getLogger(__name__)

TRY_SECONDS = 10.0
"""Whether to lock is decided this often: it reads the backend's mappings."""


class Lock:
    """The lock of one backend's model. Belongs to the loop's thread."""

    def __init__(self, held: MemoryLock, descriptor: int, process: ProcessIdentity, model: object) -> None:
        self.held = held
        self.descriptor = descriptor
        self.process = process
        self.model = model
        self.told_to_end = False


class Protecting:
    """Locks and lets go, for all backends."""

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._locks: dict[str, Lock] = {}
        self._released_at: dict[str, float] = {}
        self._next_try: dict[str, float] = {}

    def tick(self, watched: Watched, settings: Settings, now: float) -> None:
        """Let go where the lock may not stay, lock where it may be."""
        lock = self._locks.get(watched.key)
        if lock is not None:
            why = self._why_end(watched, lock, settings)
            if why is not None:
                self.release(watched, why)
            return
        if settings.protect is Protect.OFF or watched.process is None:
            watched.protect = (
                ProtectView() if settings.protect is Protect.OFF else ProtectView("none", detail="it does not run")
            )
            return
        if watched.supervisor is None:
            watched.protect = ProtectView("none", detail="it is only watched, and left alone")
            return
        refused = cannot(watched, settings, Action.PROTECT)
        if refused is not None:
            watched.protect = ProtectView("none", detail=refused)
            return
        if now >= self._next_try.get(watched.key, now):
            self._next_try[watched.key] = now + TRY_SECONDS
            self._begin(watched, settings, now)

    def release(self, watched: Watched, why: str) -> None:
        """Let go of what is locked, if anything is."""
        lock = self._locks.get(watched.key)
        if lock is not None and not lock.told_to_end:
            log.info("%s: letting go of what is locked: %s", watched.name, why)
            lock.told_to_end = True
            lock.held.stop()

    def end(self, watched: Watched) -> None:
        """Let go now."""
        lock = self._locks.pop(watched.key, None)
        if lock is not None:
            self._loop.remove(lock.descriptor)
            lock.held.kill()
            watched.protect = ProtectView("none", detail="stopped")
        self._next_try.pop(watched.key, None)
        self._released_at.pop(watched.key, None)

    @staticmethod
    def _why_end(watched: Watched, lock: Lock, settings: Settings) -> str | None:
        if settings.protect is Protect.OFF:
            return "protect is off"
        if watched.process != lock.process or watched.model is not lock.model:
            return "it is another process or model now"
        if watched.verdict.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
            return "memory is near its limit"
        return release_reason(watched.memory, settings.near)

    def _begin(self, watched: Watched, settings: Settings, now: float) -> None:
        model, process = watched.model, watched.process
        assert process is not None
        if model is None or model.experts is None or watched.ready_at is None:
            watched.protect = ProtectView("none", detail="waits until the backend is ready and its model known")
            return
        if watched.warm_wanted is not None or watched.warm.going_on:
            watched.protect = ProtectView("none", detail="waits until warming is done")
            return
        if watched.verdict.phase is Phase.LOADING or not may_try_again(self._released_at.get(watched.key), now):
            return
        residency = watched.residency
        wanted = protection(
            settings.protect,
            other_ranges(model.experts, embeddings=False),
            model.experts.part_bytes,
            watched.memory,
            settings.near,
            maps_model=self._maps(watched, process),
            resident_bytes=residency.other_bytes if residency is not None and watched.has_answered else None,
            protected_bytes=_protected(watched),
            cgroup_version=watched.cgroup.version,
            page_bytes=PAGE_BYTES,
        )
        if not wanted.ranges:
            watched.protect = ProtectView("none", detail=wanted.reason)
            return
        try:
            held = lock_in_cgroup(
                model.identity.paths,
                model.experts.part_bytes,
                wanted.ranges,
                budget_bytes=wanted.size_bytes,
                keep_free_bytes=wanted.keep_free_bytes,
                keep_free_ratio=wanted.keep_free_ratio,
                rate_bytes_per_second=wanted.rate_bytes_per_second,
                cgroup_directory=watched.cgroup.directory,
            )
        except StartError as error:
            self._released_at[watched.key] = now
            watched.protect = ProtectView("failed", detail=str(error))
            return
        log.info("%s: %s", watched.name, wanted.reason)
        lock = Lock(held, held.fileno(), process, model)
        self._locks[watched.key] = lock
        watched.protect = ProtectView("locking", 0, wanted.size_bytes, wanted.reason)
        self._loop.add(
            lock.descriptor, selectors.EVENT_READ, lambda _events: self._follow(watched, lock, wanted.reason)
        )

    def _follow(self, watched: Watched, lock: Lock, reason: str) -> None:
        progress = lock.held.advance()
        watched.protect = ProtectView(
            progress.state, progress.locked_bytes, progress.goal_bytes, progress.detail or reason
        )
        if progress.ended:
            self._loop.remove(lock.descriptor)
            if self._locks.get(watched.key) is lock:
                del self._locks[watched.key]
            if watched.process == lock.process:
                self._released_at[watched.key] = self._clock.monotonic()
            log.info("%s: nothing is locked any more: %s", watched.name, progress.detail)

    @staticmethod
    def _maps(watched: Watched, process: ProcessIdentity) -> bool | None:
        """Whether the backend maps its model; None when its mappings cannot be read."""
        mapped = mapped_models(process.pid)
        if not mapped or watched.model is None:
            return None
        return any(path in mapped for path in watched.model.identity.paths)


def _protected(watched: Watched) -> int:
    """What is in force, not what the config asks for: it may have been refused, profile observe sets nothing, and others set it too."""
    directory = watched.cgroup.directory
    return 0 if directory is None or watched.cgroup.version != 2 else protected_bytes(RealFS(), directory)
