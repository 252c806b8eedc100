"""The daemon's hold on swap: made at start, looked at now and then, taken away at stop. What can take minutes is done in a lane.

Whoever holds the state directory's lock (`TuningKeeper`) must hold it until this is `idle`. What does the work is imported once
there is swap to care for: most machines have none of ours, and it takes 0.8 MiB.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from moetuned.daemon.workers import Lane, Workers
from moetuned.host.fs import HostFS
from moetuned.parse.config_values import wished_swap
from moetuned.schema.config import Config
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import Swap, SwapStep
from moetuned.state import swap_record, tuning
from moetuned.state.tuning_views import line_of

if TYPE_CHECKING:
    from moetuned.host.swap_host import SwapHost

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""What swapping off may take; what is not finished by then stays on and in the record for another try."""
NO_LANE = "not done: too much other work waits"
LOCKED_OUT = "not done: the undo journal is not to be had"


class SwapKeeper:
    """Belongs to the loop's thread; the work itself never touches it."""

    def __init__(self, fs: HostFS, directory: str, workers: Workers, host: SwapHost | None = None) -> None:
        """`directory` is the state directory, in which the record of what was made lies. `host` None: the real one."""
        self._fs = fs
        self._host = host
        self._directory = directory
        self._workers = workers
        self._wish: Swap | None = None
        self._steps: tuple[SwapStep, ...] = ()
        self._busy = False
        self._again: Callable[[], None] | None = None
        self._resting = False
        self.views: tuple[TunableView, ...] = ()
        self.notes: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether nothing is being made or taken away."""
        return not self._busy

    def is_concerned(self, config: Config) -> bool:
        """Whether there is anything to do: swap is wished for, or some was made and is recorded."""
        return wished_swap(config.tuning) is not None or self._is_recorded()

    def apply(self, config: Config, *, may_write: bool, changed: Callable[[], None]) -> None:
        """Make the machine's swap as `config` says, in a lane. `changed` is called in the loop when swap has come or gone.

        `may_write`: whether the state directory is held.
        """
        self._resting = False
        if not self.is_concerned(config):
            self._wish, self._steps, self.views, self.notes = None, (), (), ()
            return
        from moetuned.state import swap

        self._wish = wished_swap(config.tuning)
        self._look_for_warnings()
        self._steps = swap.plan(self._machine(), self._directory, self._wish)
        self.views = swap.planned_views(self._steps)
        if not may_write:
            self.views = tuple(
                msgspec.structs.replace(view, state="failed", detail=LOCKED_OUT) if view.state == "planned" else view
                for view in self.views
            )
            return
        self._submit(lambda: self._make(changed))

    def check(self) -> tuple[TunableView, ...]:
        """Look how swap stands; gives what somebody changed since the last look."""
        if self._busy or self._resting or not (self._steps or self.views):
            return ()
        from moetuned.state import swap

        views = swap.verify(self._machine(), self._directory, self._steps, self.views)
        drifted = tuning.newly_drifted(self.views, views)
        self.views = views
        return drifted

    def take_away(self) -> None:
        """Give back what was made, in a lane, and make none until the next `apply`. Watch `idle`."""
        self._resting, self._steps = True, ()
        if self._busy or self._is_recorded():
            self.views = tuple(
                msgspec.structs.replace(view, state="planned", detail="it is being taken away") for view in self.views
            )
            self._submit(self._give_back)
        else:
            self.views = ()

    def take_away_now(self) -> None:
        """The same here and now, for when the loop has ended; not while something is being made."""
        if self._busy or not self._is_recorded():
            return
        from moetuned.state import swap

        for view in swap.rollback_slowly(self._machine(), self._directory, patience_seconds=PATIENCE_SECONDS):
            log.info("%s", line_of(view))

    def _submit(self, work: Callable[[], None]) -> None:
        """One at a time; of those asked for meanwhile the last counts."""
        if self._busy:
            self._again = work
        else:
            work()

    def _make(self, changed: Callable[[], None]) -> None:
        from moetuned.state import swap

        host, directory, wish = self._machine(), self._directory, self._wish
        self._run(
            "making swap", lambda: swap.apply_slowly(host, directory, wish, patience_seconds=PATIENCE_SECONDS), changed
        )

    def _give_back(self) -> None:
        from moetuned.state import swap

        host, directory = self._machine(), self._directory
        self._run(
            "taking swap away", lambda: swap.rollback_slowly(host, directory, patience_seconds=PATIENCE_SECONDS), None
        )

    def _run(self, what: str, work: Callable[[], tuple[TunableView, ...]], changed: Callable[[], None] | None) -> None:
        def done(views: tuple[TunableView, ...] | None, error: BaseException | None) -> None:
            self._busy = False
            again, self._again = self._again, None
            if views is None:
                log.error("%s failed: %s", what, error)
                views = (TunableView("swap", "failed", detail=f"{what} failed: {error}"),)
            self.views = views
            for view in views:
                log.info("%s", line_of(view))
            self._look_for_warnings()
            if again is not None:
                again()
            elif changed is not None and any(view.state in ("applied", "restored") for view in views):
                changed()

        self._busy = self._workers.submit(Lane.WORK, what, work, done)
        if not self._busy:
            self.views = tuple(msgspec.structs.replace(view, state="failed", detail=NO_LANE) for view in self.views)

    def _look_for_warnings(self) -> None:
        """Also of swap that is not ours: on a disk that turns it is worse than none."""
        from moetuned.host.swap_home import present_swap_warnings

        self.notes = present_swap_warnings(self._fs)

    def _is_recorded(self) -> bool:
        return swap_record.exists(self._directory)

    def _machine(self) -> SwapHost:
        if self._host is None:
            from moetuned.host.swap_host import RealSwapHost

            self._host = RealSwapHost(self._directory, self._fs)
        return self._host
