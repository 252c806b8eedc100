"""A backend's conversations over a restart: saved to files before it, read again after it, and the files removed. In the relief lane."""

from __future__ import annotations

import logging
from collections.abc import Callable

from moetuned.daemon.workers import Lane, Workers
from moetuned.decide.slot_saving import ConversationFacts, why_lost
from moetuned.decide.supervision import LaunchPlan
from moetuned.host import slot_files
from moetuned.host.slot_files import SavedSlots

log = logging.getLogger(__name__)


class Conversations:
    """Those of one backend. Belongs to the loop's thread. `facts` gives what is known of the backend now."""

    def __init__(self, name: str, workers: Workers, facts: Callable[[], ConversationFacts]) -> None:
        self._name = name
        self._workers = workers
        self._facts = facts
        self._saved: SavedSlots | None = None
        self._turn: object | None = None
        """The saving or reading that is waited for."""
        self._swept = False
        self._jobs = 0

    def why_lost(self, now: LaunchPlan, then: LaunchPlan) -> str | None:
        """See `decide.slot_saving`."""
        return why_lost(self._facts(), now, then)

    def go_on(self, now: LaunchPlan, then: LaunchPlan) -> bool:
        """Whether those that fit are saved at a restart that begins now; where not, why is in the log."""
        why = self.why_lost(now, then)
        if why is not None:
            log.info("%s: no conversation goes on after this restart: %s", self._name, why)
        return why is None

    def sweep(self) -> None:
        """Remove what an earlier daemon left, once."""
        facts = self._facts()
        if self._swept or facts.pid is None or facts.directory is None or not facts.can_save:
            return
        self._swept = True
        pid, directory = facts.pid, facts.directory

        def done(removed: int | None, error: BaseException | None) -> None:
            if error is not None:
                log.info(
                    "%s: whether conversations of an earlier restart are left cannot be told: %s", self._name, error
                )
            elif removed:
                log.info("%s: removed %d saved conversations of an earlier restart", self._name, removed)

        self._submit("sweeping", lambda: slot_files.remove_old(self._name, pid, directory), done)

    def save(self, then: LaunchPlan, until: float, done: Callable[[int, int], None]) -> None:
        """Save what fits a restart to `then`; `done` gets how many were and how many were not, in the loop. Not called any more after `discard`."""
        facts, turn, longest = self._facts(), object(), then.context_length
        self._turn = turn
        url, pid, directory, cost = facts.url, facts.pid, facts.directory, facts.kv_bytes_per_token
        if url is None or pid is None or directory is None or cost is None:
            done(0, 0)
            return

        def saved(found: SavedSlots | None, error: BaseException | None) -> None:
            if self._turn is not turn:
                self._remove(found)
                return
            self._turn, self._saved = None, found
            for sentence in (f"none: {error}",) if found is None else found.skipped:
                log.warning("%s: conversations that are not saved: %s", self._name, sentence)
            done(*((0, 0) if found is None else (len(found.files), found.lost)))

        if not self._submit(
            "saving", lambda: slot_files.save_slots(self._name, url, pid, directory, cost, longest, until), saved
        ):
            self._turn = None
            done(0, 0)

    def restore(self, until: float, done: Callable[[int, int], None]) -> None:
        """Read them again; `done` gets how many were and how many were not. Not called any more after `discard`."""
        facts, turn, saved = self._facts(), object(), self._saved
        count = 0 if saved is None else len(saved.files)
        url, pid = facts.url, facts.pid
        if saved is None or url is None or pid is None:
            done(0, count)
            return
        self._turn, self._saved = turn, None

        def restored(kept: int | None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("%s: its conversations cannot be read again: %s", self._name, error)
            if self._turn is turn:
                self._turn = None
                done(kept or 0, count - (kept or 0))

        if not self._submit("reading", lambda: slot_files.restore_slots(url, pid, saved, until), restored):
            self._turn, self._saved = None, saved
            done(0, count)

    def discard(self) -> None:
        """They are not needed: the files go, also those that are still being written."""
        saved, self._saved, self._turn = self._saved, None, None
        self._remove(saved)

    def _remove(self, saved: SavedSlots | None) -> None:
        if saved is not None and saved.files:
            names = tuple(file.name for file in saved.files)
            self._submit("removing", lambda: slot_files.remove(saved.directory, names), lambda *_: None)

    def _submit(self, what: str, work: Callable[[], object], done: Callable[..., None]) -> bool:
        self._jobs += 1
        return self._workers.submit(Lane.RELIEF, f"{what} conversations of {self._name} ({self._jobs})", work, done)
