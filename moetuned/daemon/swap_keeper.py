"""The daemon's hold on swap: made at start, looked at now and then, taken away at stop. What can take minutes is done in a lane.

Nothing is done about swap without the state directory's lock (`TuningKeeper`), and whoever holds it must until this is `idle`. What
does the work is imported once there is swap to care for: most machines have none of ours, and it takes 0.8 MiB.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from moetuned.daemon.workers import Lane, Workers
from moetuned.host.fs import HostFS
from moetuned.parse.config_values import wished_swap
from moetuned.schema.capability import Action
from moetuned.schema.config import Config
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import Swap, SwapStep
from moetuned.state import swap_record
from moetuned.state.tuning_views import line_of

if TYPE_CHECKING:
    from moetuned.host.swap_host import SwapHost

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""What swapping off may take; what is not finished by then stays on and in the record for another try."""
NO_LANE = "not done: too much other work waits"
LOCKED_OUT = "not done: the undo journal is not to be had"
NOTHING_REFUSED: Mapping[Action, str] = {}
TRY_ALONE = "run `sudo moetunectl tune rollback --alone`"


class SwapKeeper:
    """Belongs to the loop's thread; the work itself never touches it."""

    def __init__(
        self,
        fs: HostFS,
        directory: str,
        workers: Workers,
        host: SwapHost | None = None,
        *,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """`directory` is the state directory, in which the record of what was made lies. `host` None: the real one.

        `holds`: whether this process holds the directory at this moment.
        """
        self._fs = fs
        self._host = host
        self._directory = directory
        self._workers = workers
        self._holds = holds
        self._wish: Swap | None = None
        self._steps: tuple[SwapStep, ...] = ()
        self._busy = False
        self._again: Callable[[], None] | None = None
        self._resting = False
        self._ending = False
        self._kept_record = False
        self._told: set[str] = set()
        self._news: tuple[TunableView, ...] = ()
        self._refused: Mapping[Action, str] = {}
        self.waits = False
        """Whether nothing is made before it is known what can be."""
        self.views: tuple[TunableView, ...] = ()
        self.notes: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether nothing is being made or taken away."""
        return not self._busy

    def is_concerned(self, config: Config) -> bool:
        """Whether there is anything to do: swap is wished for, or some is recorded, or is being made or taken away just now."""
        return wished_swap(config.tuning) is not None or self._busy or self._is_recorded() or self._kept_record

    def is_news(self, refused: Mapping[Action, str] | None) -> bool:
        """Whether `refused` is what the next `apply` waits for, or other than the last one heard."""
        return self.waits or (refused or {}) != self._refused

    def apply(
        self,
        config: Config,
        *,
        changed: Callable[[], None],
        by_hand: bool = False,
        refused: Mapping[Action, str] | None = NOTHING_REFUSED,
    ) -> None:
        """Make the machine's swap as `config` says, in a lane. `changed` is called in the loop when swap has come or gone.

        `by_hand`: a person asks for it, so what was left to somebody who took it away is made again. `refused`: what cannot be done from
        here, and why; None: not known yet, and nothing is made before it is.
        """
        self._resting, self._again, self.waits = False, None, False
        self._wish, self._refused = wished_swap(config.tuning), refused or {}
        if not self.is_concerned(config):
            self._steps, self.views, self.notes = (), (), ()
            return
        from moetuned.state import swap

        self.waits = refused is None
        self._look_for_warnings()
        if self._say_if_lost():
            return
        self._steps = swap.plan(self._machine(), self._directory, self._wish)
        views = swap.verify(self._machine(), self._directory, self._steps)
        if not self._holds():
            self.views = tuple(map(_locked_out, views))
            return
        self.views = tuple(_to_come(view, by_hand=by_hand) for view in views)
        if self.waits:
            return
        self._submit(lambda: self._make(changed, by_hand=by_hand))

    def check(self) -> tuple[TunableView, ...]:
        """Look how swap stands; gives what somebody changed since the last look. It is theirs from then on."""
        if self._busy or self._resting or not self._holds() or not (self._steps or self.views):
            return ()
        if self._say_if_lost():
            return ()
        from moetuned.state import swap

        self.views = swap.verify(self._machine(), self._directory, self._steps, self.views)
        self._note_drift(self.views)
        if self._news:
            swap.confirm_drift(self._machine(), self._directory)
        news, self._news = self._news, ()
        return news

    def take_away(self, *, ending: bool = False) -> None:
        """Give back what was made, in a lane, and make none until the next `apply`. Watch `idle`. `ending`: moetuned stops."""
        self._resting, self._steps, self._again, self.waits = True, (), None, False
        self._ending = ending
        if self._say_if_lost():
            return
        if self._holds() and (self._busy or self._is_recorded()):
            self.views = tuple(
                msgspec.structs.replace(view, state="planned", detail="it is being taken away") for view in self.views
            )
            self._submit(self._give_back)
        else:
            self.views = ()

    def take_away_now(self) -> None:
        """The same here and now, for when the loop has ended without it; not while something is being made."""
        if self._busy or self._resting or not self._holds() or self._say_if_lost() or not self._is_recorded():
            return
        from moetuned.state import swap

        self._ending = True
        self._say(swap.rollback_slowly(self._machine(), self._directory, patience_seconds=PATIENCE_SECONDS))

    def _submit(self, work: Callable[[], None]) -> None:
        """One at a time; of those asked for meanwhile the last counts."""
        if self._busy:
            self._again = work
        else:
            work()

    def _make(self, changed: Callable[[], None], *, by_hand: bool) -> None:
        from moetuned.state import swap

        host, directory, wish = self._machine(), self._directory, self._wish
        self._run(
            "making swap",
            lambda: swap.apply_slowly(host, directory, wish, patience_seconds=PATIENCE_SECONDS, by_hand=by_hand),
            changed,
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
                views = (TunableView("swap", "failed", detail=f"{what} failed: {error}"),)
            self._kept_record = self._is_recorded() or any(view.state == "applied" for view in views)
            self._say(views)
            self._note_drift(views)
            self._look_for_warnings()
            if again is not None:
                again()
                return
            self.views = views
            if changed is not None and any(view.state in ("applied", "restored") for view in views):
                changed()

        self._busy = self._workers.submit(Lane.WORK, what, work, done)
        if not self._busy:
            self.views = tuple(msgspec.structs.replace(view, state="failed", detail=NO_LANE) for view in self.views)

    def _say(self, views: tuple[TunableView, ...]) -> None:
        for view in views:
            if view.state == "failed":
                log.warning("%s%s", line_of(view), f"; {TRY_ALONE}" if self._ending else "")
            else:
                log.info("%s", line_of(view))

    def _note_drift(self, views: tuple[TunableView, ...]) -> None:
        """Keep what somebody changed for the next look's answer, each once."""
        drifted = tuple(view for view in views if view.state == "drifted")
        self._news += tuple(view for view in drifted if view.name not in self._told)
        self._told &= {view.name for view in views if view.state in ("drifted", "yielded")}
        self._told |= {view.name for view in drifted}

    def _say_if_lost(self) -> bool:
        """Whether the record of what was made is gone: nothing is known then to be ours, so nothing is changed."""
        if self._busy or not self._kept_record or self._is_recorded():
            return False
        path = os.path.join(self._directory, swap_record.FILE_NAME)
        why = f"the record of what moetuned made, {path}, is gone (is its file system mounted?), so the swap is left as it is"
        cure = TRY_ALONE if self._ending else "reload moetuned"
        note = f"{why}: see that it is there again, then {cure}; or swap it off by hand"
        if self._ending or note not in self.notes:
            log.warning("%s", note)
            self.notes = (*self.notes, note)
        self.views = tuple(msgspec.structs.replace(view, state="failed", detail=why) for view in self.views)
        return True

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
        self._host.refused = self._refused
        return self._host


def _locked_out(view: TunableView) -> TunableView:
    """A view by a process that does not hold the record: it may be changing, so nobody's swap is called anybody's."""
    if view.state in ("planned", "already", "drifted", "yielded"):
        return msgspec.structs.replace(view, state="failed", now=None, detail=LOCKED_OUT)
    return view


def _to_come(view: TunableView, *, by_hand: bool) -> TunableView:
    """A view before the work is done that may change it."""
    if view.state == "applied" and view.wanted == "none":
        return msgspec.structs.replace(view, state="planned", detail="it is being taken away")
    if by_hand and view.state in ("drifted", "yielded", "failed"):
        return msgspec.structs.replace(view, state="planned", detail=f"asked for by hand; it was: {view.detail}")
    return view
