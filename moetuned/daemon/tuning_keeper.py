"""The daemon's hold on kernel settings: applied at start through the undo journal, checked for drift, rolled back at stop."""

from __future__ import annotations

import logging
import os

import msgspec

from moetuned import tunables
from moetuned.host.fs import HostFS
from moetuned.host.tuning_targets import find_targets
from moetuned.schema.config import Config
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import PlannedStep
from moetuned.state import tuning
from moetuned.state.undo_journal import JournalError, UndoJournal, open_journal, read_boot_id

log = logging.getLogger(__name__)


class TuningKeeper:
    """Applies and gives back settings. Works at once, not in a worker: each is a write of a few bytes and an fsync."""

    def __init__(self, fs: HostFS, journal_path: str) -> None:
        self._fs = fs
        self._path = journal_path
        self._journal: UndoJournal | None = None
        self._steps: tuple[PlannedStep, ...] = ()
        self.views: tuple[TunableView, ...] = ()
        self.notes: tuple[str, ...] = ()

    def apply(self, config: Config) -> None:
        """Make the machine as `config` says, and give back what an earlier run left and nobody wants now.

        Before backends are started: what a file takes when it is opened must be there by then.
        """
        self.notes = ()
        if tunables.changes_nothing(config.tuning) and self._journal is None and not os.path.exists(self._path):
            self._steps, self.views = (), ()
            return
        self._steps, problems = tunables.plan_tuning(self._fs, config.tuning, find_targets(config))
        self.notes = problems
        try:
            journal = self._open()
        except JournalError as error:
            self.notes = (*problems, f"no setting is changed: {error}")
            self.views = tuple(
                msgspec.structs.replace(view, state="failed", detail="not applied: the undo journal is not to be had")
                for view in tuning.verify(self._fs, {}, self._steps)
                if view.state == "planned"
            )
            return
        self.views = tuning.apply(self._fs, journal, self._steps)
        for view in self.views:
            log.info("%s", line_of(view))

    def check(self) -> tuple[TunableView, ...]:
        """Look how the settings stand; gives those that somebody changed since the last look."""
        if self._journal is None:
            return ()
        views = tuning.verify(self._fs, self._journal.held, self._steps, self.views)
        drifted = tuning.newly_drifted(self.views, views)
        self.views = views
        return drifted

    def rollback(self) -> None:
        """Give everything back and let go of the journal."""
        if self._journal is None:
            return
        self.views = tuning.rollback(self._fs, self._journal)
        for view in self.views:
            log.info("%s", line_of(view))
        self._journal.close()
        self._journal = None

    def _open(self) -> UndoJournal:
        if self._journal is None:
            self._journal = open_journal(self._path, read_boot_id(self._fs))
            for note in (*self._journal.notes, *self._journal.problems):
                log.warning("%s", note)
        return self._journal


def line_of(view: TunableView) -> str:
    """One setting for the log: "vm.dirty_ratio: applied, 10 (it was 20)"."""
    now = "" if view.now is None else f", {view.now}"
    original = "" if view.original is None or view.original == view.now else f" (it was {view.original})"
    detail = f": {view.detail}" if view.detail else ""
    return f"{view.name}: {view.state}{now}{original}{detail}"
