"""The daemon's hold on kernel settings: applied at start through the undo journal, checked for drift, rolled back at stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

import msgspec

from moetuned import tunables
from moetuned.decide.protection import RETRY_SECONDS, may_try_again
from moetuned.decide.tuning_plan import without_refused
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.clock import Clock, RealClock
from moetuned.host.fs import HostFS
from moetuned.host.tuning_targets import asks_of_cgroup, find_targets
from moetuned.host.unified_cgroup import is_of_daemon
from moetuned.schema.config import Config
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import ModelTarget, PlannedStep, Targets
from moetuned.schema.units import format_duration
from moetuned.state import borrowed_setting, tuning
from moetuned.state.tuning_views import line_of
from moetuned.state.undo_journal import JournalError, UndoJournal, open_journal, read_boot_id

log = logging.getLogger(__name__)


_RIVALS_NAMED = 3
_KEPT = "memory_min "
"""So the names of these settings begin: one a cgroup."""
_TRY_AGAIN_SECONDS = 10.0
RESTING = "settings were given back by hand and stay as they are until `moetunectl tune apply`, a reload or a restart of moetuned"


class TuningKeeper:
    """Applies and gives back settings. Works at once, not in a worker: each is a write of a few bytes and an fsync."""

    def __init__(self, fs: HostFS, journal_path: str, clock: Clock | None = None) -> None:
        self._fs = fs
        self._clock = clock or RealClock()
        self._path = journal_path
        self._journal: UndoJournal | None = None
        self._steps: tuple[PlannedStep, ...] = ()
        self._suspects: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()
        self._resting = False
        self._borrowed_problem = ""
        self._cgroups: dict[str, str] = {}
        self._with_daemon: frozenset[str] = frozenset()
        self.views: tuple[TunableView, ...] = ()
        self.notes: tuple[str, ...] = ()
        self._refused: Mapping[str, str] = {}
        self._applied: tuple[Config, bool] | None = None
        """What `apply` was told last: the config, and `hold`."""
        self._room: Mapping[str, str | None] = {}
        """What may be kept for good, as it was found then: see `tunables.memory_min`."""
        self._given_up: tuple[float, str] | None = None
        """When that was given up last because memory was short, monotonic seconds, and why."""

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """The plan that was applied last."""
        return self._steps

    @property
    def must_look_again(self) -> bool:
        """Whether a setting was seen to have drifted for the first time: one more look decides."""
        return bool(self._suspects - self._told)

    @property
    def holds(self) -> bool:
        """Whether this process holds the undo journal and its directory."""
        return self._journal is not None

    @property
    def resting(self) -> bool:
        """Whether a person had everything given back."""
        return self._resting

    def refuse(self, files: Mapping[str, str]) -> bool:
        """Files that cannot be written from here, by path, and why: the next `apply` skips their settings. Whether they are others than before."""
        before, self._refused = self._refused, files
        return before != files

    def apply(
        self,
        config: Config,
        *,
        by_hand: bool = False,
        hold: bool = False,
    ) -> None:
        """Make the machine as `config` says, and give back what an earlier run left and nobody wants now.

        Before backends are started: what a file takes when it is opened must be there by then. `by_hand`: a person asks for it.
        `hold`: take the journal's directory though no setting is wanted.
        """
        self.notes, self._resting = (), False
        self._applied, self._room = (config, hold), {}
        self._give_back_borrowed()
        if (
            tunables.changes_nothing(config.tuning)
            and self._journal is None
            and not hold
            and not os.path.exists(self._path)
        ):
            self._steps, self.views = (), ()
            return
        targets = self._with_short(find_targets(config, self._cgroups, with_daemon=self._with_daemon))
        try:
            journal = self._open()
        except JournalError as error:
            steps, problems = tunables.plan_tuning(self._fs, config.tuning, targets)
            self._steps = without_refused(steps, self._refused)
            self.notes = (*problems, f"no setting is changed: {error}")
            self.views = tuple(
                msgspec.structs.replace(view, state="failed", detail="not applied: the undo journal is not to be had")
                for view in tuning.verify(self._fs, {}, self._steps)
                if view.state == "planned"
            )
            return
        originals = {name: entry.original for name, entry in journal.held.items()}
        targets = msgspec.structs.replace(targets, originals=tuning.standing_originals(self._fs, journal.held))
        steps, self.notes = tunables.plan_tuning(self._fs, config.tuning, targets, originals=originals)
        self._steps = without_refused(steps, self._refused)
        self._show(tuning.apply(self._fs, journal, self._steps, by_hand=by_hand))
        self._room = self._look_at_room(config, journal)

    def _look_at_room(self, config: Config, journal: UndoJournal) -> Mapping[str, str | None]:
        """What each cgroup may keep for good (memory.min), in bytes, by name; None: refused."""
        if all(one.memory_min is None for one in config.backends):
            return {}
        from moetuned.tunables import memory_min  # most configs do not need it

        targets = msgspec.structs.replace(
            self._with_short(find_targets(config, self._cgroups, ModelTarget, self._with_daemon)),
            originals=tuning.standing_originals(self._fs, journal.held),
        )
        found = memory_min.instances(self._fs, targets, lambda _: (0, 0))
        return {spec.name: spec.asked if spec.skip is None else None for spec in found}

    def _with_short(self, targets: Targets) -> Targets:
        if self._given_up is None or may_try_again(self._given_up[0], self._clock.monotonic()):
            return targets
        return msgspec.structs.replace(targets, short=self._given_up[1])

    def give_up_kept(self, why: str) -> bool:
        """Memory is near a limit, and what is kept for backends for good is a part of that: others get it before the kernel kills.

        `why`: one sentence without an end. Whether something was kept. What could not be given back is tried again, but not at each look.
        Only that is done here, since it is urgent; the whole plan, for which headers of models are read, is made anew at the next `check`.
        """
        if self._applied is None or self._resting or self._journal is None or not _keeps(self._journal):
            return False
        now = self._clock.monotonic()
        if self._given_up is not None and now - self._given_up[0] < _TRY_AGAIN_SECONDS:
            return False
        self._given_up = (now, why)
        log.warning(
            "what is kept for backends is given up for %s (memory_min): %s", format_duration(RETRY_SECONDS), why
        )
        kept = [name for name in self._journal.held if name.startswith(_KEPT)]
        found = {view.name: view for view in tuning.rollback(self._fs, self._journal, kept)}
        for view in found.values():
            log.info("%s", line_of(view))
        self.views = tuple(_given_up(found.get(view.name, view), why) for view in self.views)
        return True

    def follow_cgroups(self, config: Config, running: Mapping[str, str | None]) -> bool:
        """Note the cgroups of backends that run, by name; whether settings are to be applied again.

        Settings of a backend's cgroup can only be made while it is there. A backend that is started passes through the daemon's.
        """
        if self._resting:
            return False
        asking = [one.name for one in config.backends if asks_of_cgroup(one)]
        found = {name: cgroup for name in asking if (cgroup := running.get(name)) is not None}
        own = memory_cgroup(os.getpid(), self._fs).directory if found else None
        with_daemon = frozenset(name for name, cgroup in found.items() if is_of_daemon(cgroup, own))
        found = {name: cgroup for name, cgroup in found.items() if name not in with_daemon}
        changed = (found, with_daemon) != (self._cgroups, self._with_daemon)
        self._cgroups, self._with_daemon = found, with_daemon
        return changed

    def check(self) -> tuple[TunableView, ...]:
        """Look how the settings stand; gives those that somebody changed, each once, when two looks in a row have seen it.

        They are theirs from then on. What a measurement has borrowed for microseconds is not theirs, nor what one that was
        killed has left: that is given back first.
        """
        self._give_back_borrowed()
        if self._journal is None or self._resting:
            return ()
        self.views = self._look(self._journal)
        seen = _drifted(self.views)
        confirmed = seen & self._suspects
        if confirmed:
            tuning.confirm_drift(self._fs, self._journal, self._steps, confirmed)
            self.views = self._look(self._journal)
        news = tuple(view for view in self.views if view.name in confirmed - self._told)
        self._suspects, self._told = seen, (self._told & seen) | confirmed
        self._follow_room(self._journal)
        return self._with_rivals(news)

    def _follow_room(self, journal: UndoJournal) -> None:
        """What is kept for good must be given up when a limit above it, what others keep or huge pages leave too little room later."""
        if self._applied is None or self._suspects - self._told:
            return
        config, hold = self._applied
        if self._look_at_room(config, journal) != self._room:
            log.info("how much memory may be kept for backends has changed (memory_min)")
            self.apply(config, hold=hold)

    def _with_rivals(self, views: tuple[TunableView, ...]) -> tuple[TunableView, ...]:
        """The views with who else sets the setting, as far as files tell: probably it was one of them."""
        if not views:
            return ()
        # Needed on a rare day, and its parsers take memory.
        from moetuned.decide.rival_match import who_else_sets
        from moetuned.host.rivals import look_for_rivals

        found = look_for_rivals(self._fs).rivals
        wanted = {step.wanted.spec.name: step.wanted for step in self._steps}

        def named(view: TunableView) -> TunableView:
            item = wanted.get(view.name)
            if item is None:
                return view
            who = who_else_sets(found, item.spec.place, item.cell.value)
            return msgspec.structs.replace(view, detail="; ".join((view.detail, *who[:_RIVALS_NAMED])))

        return tuple(map(named, views))

    def rest(self) -> None:
        """Give everything back because a person wants it so, and set nothing until the next `apply`.

        The journal stays with this process: who wants settings applied again has to ask it.
        """
        self._give_back_borrowed()
        if self._journal is not None:
            views = tuning.rollback(self._fs, self._journal)
            self._show((*views, *tuning.left_to_others(self._fs, self._journal, views)))
        else:
            self.views = ()
        self.notes, self._resting = (RESTING,), True

    def rollback(self) -> None:
        """Give everything back; the journal stays with this process. What follows what the machine has room for does so no more."""
        self._applied = None
        self._give_back_borrowed()
        if self._journal is not None:
            self._show(tuning.rollback(self._fs, self._journal))

    def close(self) -> None:
        """Let another process have the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _give_back_borrowed(self) -> None:
        """What a measurement that was killed has left: it may be one of the settings."""
        if not os.path.exists(borrowed_setting.journal_path(self._path)):
            return
        try:
            for view in borrowed_setting.give_back(self._fs, self._path, read_boot_id(self._fs)):
                log.info("a measurement that was killed: %s", line_of(view))
        except JournalError as error:
            if str(error) != self._borrowed_problem:  # said once: this is done at each look
                log.warning("%s", error)
            self._borrowed_problem = str(error)

    def _look(self, journal: UndoJournal) -> tuple[TunableView, ...]:
        views = tuning.verify(self._fs, journal.held, self._steps, self.views, journal.yields)
        if not os.path.exists(borrowed_setting.journal_path(self._path)):
            return views
        try:
            borrowed = borrowed_setting.look(self._fs, self._path, read_boot_id(self._fs))
        except JournalError:  # said already
            return views
        return borrowed_setting.explain(views, journal.held.values(), borrowed, self.views)

    def _show(self, views: tuple[TunableView, ...]) -> None:
        self.views = views
        self._suspects = _drifted(views)
        for view in views:
            log.info("%s", line_of(view))

    def _open(self) -> UndoJournal:
        if self._journal is None:
            self._journal = open_journal(self._path, read_boot_id(self._fs))
            for note in (*self._journal.notes, *self._journal.problems):
                log.warning("%s", note)
        return self._journal


def _given_up(view: TunableView, why: str) -> TunableView:
    """The view of what was given back, if it is one."""
    if not view.name.startswith(_KEPT) or view.state != "restored":
        return view
    return msgspec.structs.replace(view, state="skipped", detail=why)


def _keeps(journal: UndoJournal) -> bool:
    return any(name.startswith(_KEPT) for name in journal.held)


def _drifted(views: Iterable[TunableView]) -> frozenset[str]:
    return frozenset(view.name for view in views if view.state == "drifted")
