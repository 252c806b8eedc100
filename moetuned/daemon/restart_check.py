"""Looks, before a backend that answers is told to end, whether anything would let it not start again. In the relief lane."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from moetuned.daemon.loop import Loop
from moetuned.daemon.obstacles import model_obstacle, model_problem
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide.launch_command import command_for
from moetuned.decide.supervision import LaunchPlan
from moetuned.host.clock import Clock
from moetuned.schema.config import Backend
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.supervision import RestartCause

log = logging.getLogger(__name__)

HURRY_SECONDS = 0.5
"""While memory runs out an answer is waited for so long; without one it is restarted as if there were no obstacle."""
PATIENT_SECONDS = 30.0
"""Any other restart waits so long; without an answer it is not made."""
LATE = "whether its model can be read could not be told in time"

OBSTACLE_SECONDS = 60.0
"""Where a restart to free memory or to give back is wanted, what would let it not start again is looked for again after so long."""

Done = Callable[[str | None], None]


class Waiting(msgspec.Struct, frozen=True):
    """A restart: because of what, in one sentence, and with what. `context`: the one that somebody asked for."""

    cause: RestartCause
    why: str
    plan: LaunchPlan
    context: int | None = None


class Obstructed(msgspec.Struct, frozen=True):
    """A restart that was not made because it could not have started again, and `why`, a sentence. `at`: monotonic seconds."""

    cause: RestartCause
    why: str
    at: float


class RestartCheck:
    """That of one backend. Belongs to the loop's thread. `paths`: its model's files, as they were read last; (): not known."""

    def __init__(
        self, name: str, loop: Loop, clock: Clock, workers: Workers, paths: Callable[[], Sequence[str]]
    ) -> None:
        self._name = name
        self._loop = loop
        self._clock = clock
        self._workers = workers
        self._paths = paths
        self._done: Done | None = None
        self.obstructed: Obstructed | None = None
        """What the last look found; None: nothing."""
        self._told: tuple[RestartCause, str] | None = None

    @property
    def obstacle(self) -> str | None:
        """Why it could not start again, as a look found a moment ago, a sentence; None: nothing is known."""
        found = self.obstructed
        recent = found is not None and self._clock.monotonic() - found.at < OBSTACLE_SECONDS
        return found.why if found is not None and recent else None

    def is_news(self, cause: RestartCause, why: str) -> bool:
        """Whether a restart that was not made for this is to be told: the first of its kind, and each that somebody asked for."""
        told, self._told = self._told, (cause, why)
        return cause is RestartCause.BY_HAND or told != (cause, why)

    def ask(self, config: Backend, waiting: Waiting, done: Done) -> None:
        """Look; `done` gets the obstacle, a sentence, or None where there is none, in the loop."""
        plan, hurry = waiting.plan, waiting.cause is RestartCause.RELIEF

        def found(problem: str | None) -> None:
            self.obstructed = None if problem is None else Obstructed(waiting.cause, problem, self._clock.monotonic())
            if problem is None:
                self._told = None
            done(problem)

        self._done = found
        paths = tuple(self._paths())
        # One that is under way for the same backend answers this one, too.
        self._workers.submit(
            Lane.RELIEF,
            f"looking whether {self._name} could start again",
            lambda: restart_problem(config, plan, paths),
            self._found,
        )

        def late() -> None:
            if self._done is found:
                self._answer(None if hurry else LATE)

        self._loop.call_at(self._clock.monotonic() + (HURRY_SECONDS if hurry else PATIENT_SECONDS), late)

    def _found(self, problem: str | None, error: BaseException | None) -> None:
        if error is not None:
            log.warning("%s: whether it could start again cannot be told: %s", self._name, error)
        self._answer(problem)

    def _answer(self, problem: str | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(problem)


def refusal(backend: str, cause: RestartCause, why: str) -> tuple[EventName, str]:
    """The event of a restart that is not made."""
    if cause is RestartCause.RELIEF:
        text = (
            f"{backend} is not restarted to free memory, because it could not start again: {why}; it goes on as it is"
        )
        return EventName.RELIEF_EXHAUSTED, text
    return EventName.BACKEND_NOT_RESTARTED, f"{backend} is not restarted: {why}; it goes on as it is"


def restart_problem(
    config: Backend, plan: LaunchPlan, paths: Sequence[str], environ: Mapping[str, str] = os.environ
) -> str | None:
    """Why it could not be started again with `plan`, a sentence; None: nothing is known. May block.

    Of one that another manager starts it is not known where its model is for it. What counts there is a model that moetuned could read and
    cannot any more, unless the config names another one that it can.
    """
    if isinstance(config.supervise, SuperviseProcess):
        found = model_obstacle(config.supervise, command_for(config.supervise.command, config.model, plan), environ)
        return None if found is None else found.text
    problem = model_problem(paths[0]) if paths else None
    if problem is None or config.model is None or config.model in paths:
        return problem
    return None if model_problem(config.model) is None else problem
