"""What somebody asks of one backend: to restart, pause or resume it. Checked, answered in one sentence, and carried out."""

from __future__ import annotations

import logging

from moetuned.daemon import returning
from moetuned.daemon.relieving import least_context, restart_seconds
from moetuned.daemon.settings import Settings
from moetuned.daemon.turned_off import cannot
from moetuned.daemon.watched import Watched
from moetuned.decide import manual_action
from moetuned.decide.detector_hung import STOPPED_STATES
from moetuned.decide.estimate import trained_context
from moetuned.host.clock import Clock
from moetuned.schema.capability import Action
from moetuned.schema.supervision import BackendAnswer, BackendDo, RestartCause

log = logging.getLogger(__name__)

WAIT_SECONDS = 60.0
"""A restart by hand waits so long for requests that are being answered."""


class ManualActions:
    """Belongs to the loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ask(
        self,
        watched: Watched,
        settings: Settings,
        do: BackendDo,
        context: int | None = None,
        *,
        now: bool = False,
        dry_run: bool = False,
    ) -> tuple[int, object]:
        """Status and answer. `now`: a restart does not wait for requests; `dry_run`: nothing is done."""
        if context is not None and do is not BackendDo.RESTART:
            return 400, {"error": "a context can only be given for a restart"}
        problem = manual_action.refusal(_facts(watched, settings, do, now=now), do, context)
        if problem is None and do is not BackendDo.RESUME:
            problem = cannot(watched, settings, Action(do.value))
        if problem is not None:
            return 409, {"error": problem}
        busy, wait = _busy(watched), 0.0 if now else WAIT_SECONDS
        answer = _answer(watched, do, context, busy, wait, self._clock.wall(), done=not dry_run)
        if not dry_run:
            log.info("%s: somebody asked to %s it", watched.name, do.value)
            self._do(watched, do, context, wait)
        return 200 if dry_run else 202, answer

    @staticmethod
    def _do(watched: Watched, do: BackendDo, context: int | None, wait: float) -> None:
        supervisor = watched.supervisor
        assert supervisor is not None
        match do:
            case BackendDo.PAUSE:
                supervisor.pause_by_hand()
            case BackendDo.RESUME:
                supervisor.resume_by_hand()
            case BackendDo.RESTART:
                # What is stopped does not get on with its requests.
                seconds = 0.0 if is_stopped(watched) else wait
                plan = manual_action.plan_of(supervisor.state, context)
                returning.allow(watched)
                supervisor.restart_by_hand(plan, context, seconds=seconds)


def is_stopped(watched: Watched) -> bool:
    """Whether its process is stopped, by moetuned or by somebody else."""
    process = None if watched.sample is None else watched.sample.process
    own = watched.supervisor is not None and watched.supervisor.paused is not None
    return own or (watched.process is not None and process is not None and process.state in STOPPED_STATES)


def trained_tokens(watched: Watched) -> int | None:
    """Context length its model was trained for; None: unknown."""
    return None if watched.model is None else trained_context(watched.model.headers[0])


def _busy(watched: Watched) -> int | None:
    """Requests that are being answered; None: unknown, and while it does not run."""
    found = None if watched.signals is None or watched.process is None else watched.signals.get("busy_slots")
    return None if found is None else int(found)


def _facts(watched: Watched, settings: Settings, do: BackendDo, *, now: bool) -> manual_action.ManualActionFacts:
    supervisor = watched.supervisor
    return manual_action.ManualActionFacts(
        backend=watched.name,
        state=None if supervisor is None else supervisor.state,
        waiting=supervisor is not None and supervisor.waits_because is RestartCause.BY_HAND and not now,
        runs=supervisor is not None and supervisor.process is not None,
        # What the last look saw may be over: to stop it again does no harm, to let it go on neither.
        paused=is_stopped(watched)
        if do is BackendDo.RESUME
        else supervisor is not None and supervisor.paused is not None,
        context_changeable=supervisor is not None and supervisor.sets("context"),
        minimum_context=least_context(watched, settings),
        most_context=manual_action.most_context(trained_tokens(watched), watched.slots_now(), watched.command),
    )


def _answer(
    watched: Watched, do: BackendDo, context: int | None, busy: int | None, wait: float, wall: float, *, done: bool
) -> BackendAnswer:
    supervisor = watched.supervisor
    assert supervisor is not None
    if do is not BackendDo.RESTART:
        return BackendAnswer(watched.name, do, done, wall, busy=busy)
    seconds, source = restart_seconds(watched)
    changeable = supervisor.sets("context")
    plan = manual_action.plan_of(supervisor.state, context)
    return BackendAnswer(
        backend=watched.name,
        do=do,
        done=done,
        asked_wall_seconds=wall,
        context_before=watched.context_now(),
        context_after=plan.context_length if changeable else watched.context_now(),
        busy=busy,
        wait_seconds=wait,
        expected_seconds=seconds,
        expected_source=source,
        runs=supervisor.process is not None,
    )
