"""Carries out what `decide.supervision` orders for one backend: what every way of supervising has in common.

The ways are `daemon.process_supervisor`, of a child of the daemon, and `daemon.service_supervisor`, of a backend that another manager runs.
"""

from __future__ import annotations

import abc
import logging
import selectors
from collections.abc import Callable, Sequence

import msgspec

from moetuned.daemon.conversations import Conversations
from moetuned.daemon.loop import Loop
from moetuned.decide import supervision as sv
from moetuned.host import spawn
from moetuned.host.clock import Clock
from moetuned.host.pause_guard import PauseGuard
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.config import Backend
from moetuned.schema.event import EventName
from moetuned.state import backend_record

log = logging.getLogger(__name__)

Say = Callable[[EventName, str], None]

PAUSE_SECONDS = 3.0
"""A process that is stopped for a second look is continued after this long, whatever happens."""
PAUSE_AGAIN_SECONDS = 30.0
"""It is not stopped again sooner."""


def preferred_plan(config: Backend) -> sv.LaunchPlan:
    """What the config wants the backend to be started with."""
    return sv.LaunchPlan(
        config.context.preferred, config.prompt_cache_mib, config.slots, config.checkpoints, config.cache_type
    )


class Supervisor(abc.ABC):
    """One backend and its process. Belongs to the loop's thread; `say` gets the events."""

    def __init__(
        self,
        config: Backend,
        loop: Loop,
        clock: Clock,
        record_directory: str,
        say: Say,
        timing: sv.Timing = sv.Timing(),  # noqa: B008  frozen
    ) -> None:
        """`record_directory`: where it is recorded for the next daemon."""
        self.config = config
        self.say = say
        self._loop = loop
        self._clock = clock
        self._directory = record_directory
        self.process: spawn.SupervisedProcess | None = None
        self.adopted = False
        """Whether an earlier daemon started the process that runs."""
        self.adopted_age_seconds: float | None = None
        """How long ago an earlier daemon started the process that was taken over; None when it was not, or is not known."""
        self.relief_restarts: tuple[float, ...] = ()
        """Monotonic seconds of the restarts that were made to free memory, also those of an earlier daemon in this boot."""
        self.load_seconds: float | None = None
        """How long it took from its last start until it was ready; None: not seen yet."""
        self._started_at: float | None = None
        self.before_start: str | None = None
        """What was different at its last start from what the config asks for, and why; None: nothing."""
        self._recorded: backend_record.BackendRecord | None = None
        self.conversations: Conversations | None = None
        """What saves its conversations over a restart; None: nothing does."""
        self.paused_wall_seconds: float | None = None
        """Since when (Unix time) it is paused by hand; None: it is not."""
        self._uncounted = False
        """Whether the restart that waits is to free memory, and counts once it begins."""
        self._guard: PauseGuard | None = None
        self._released: PauseGuard | None = None
        self._held_at: float | None = None
        self.before_end: Callable[[], None] = lambda: None
        """Called when its process is about to be told to end."""
        self.state = sv.Supervision(config.name, preferred_plan(config), timing)

    @property
    def identity(self) -> ProcessIdentity | None:
        """The running process; None while there is none."""
        return None if self.process is None else self.process.identity

    @abc.abstractmethod
    def sets(self, value: str) -> bool:
        """Whether a restart can change this one of `host.service.VALUES` of what runs (else: of what would be started)."""

    @abc.abstractmethod
    def start(self) -> None:
        """Take over what runs, or start it, if that is moetuned's to do."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End it without asking again."""

    @property
    def before_restart(self) -> str | None:
        """What a restart under way waits for while it still answers, the end of a sentence; None: there is none."""
        return sv.before_restart(self.state, self._clock.monotonic())

    @property
    def absence(self) -> str | None:
        """Why it does not run, the end of a sentence; None when there is nothing to add."""
        return sv.absence(self.state, self._clock.monotonic())

    def restart(self, plan: sv.LaunchPlan) -> None:
        """End it and start it again with `plan`, to free memory, at once."""
        self._count_restart()
        self._do(sv.restart(self.state, plan, self._clock.monotonic()))

    def drain(self, plan: sv.LaunchPlan, seconds: float, *, to_free_memory: bool = True) -> None:
        """Start it again with `plan` once it works on no request, after so many seconds at the latest; its conversations are saved.

        Until its process is told to end, `call_off` takes that back.
        """
        saves = self.conversations is not None and self.conversations.why_lost(self.state.plan, plan) is None
        self._uncounted = to_free_memory
        self._do(sv.drain(self.state, plan, self._clock.monotonic(), seconds, saves=saves))

    @property
    def draining(self) -> bool:
        """Whether a restart waits, and can be called off."""
        return self.state.stage in (sv.Stage.DRAINING, sv.Stage.SAVING)

    def hasten(self, seconds: float) -> None:
        """The restart that waits may wait no longer than that."""
        self._do(sv.hasten(self.state, self._clock.monotonic(), seconds))

    def call_off(self) -> None:
        """The restart that waits is not needed any more."""
        self._uncounted = False
        self._do((sv.call_off(self.state), ()))

    def hear(self, busy: int | None, answered_at: float | None) -> None:
        """It said at `answered_at` (monotonic) that it works on so many requests; None: not known."""
        self._do(sv.heard(self.state, busy, answered_at, self._clock.monotonic()))

    # Pausing

    @property
    def held(self) -> bool:
        """Whether its process is stopped for a second look."""
        return self._held_at is not None and self._guard is not None

    @property
    def pausable(self) -> bool:
        """Whether it may be stopped for a second look now."""
        rested = self._held_at is None or self._clock.monotonic() - self._held_at >= PAUSE_AGAIN_SECONDS
        return (
            self.process is not None
            and self.paused_wall_seconds is None
            and self._guard is None
            and self._released is None
            and rested
        )

    def hold(self) -> None:
        """Stop its process for a second look, for `PAUSE_SECONDS` at most, also when the daemon does not live so long."""
        if not self.pausable or self.process is None:
            return
        self._held_at = self._clock.monotonic()
        try:
            self._guard = PauseGuard(self.process.identity, PAUSE_SECONDS)
        except OSError as error:
            log.warning("%s: it is not paused for a second look: %s", self.config.name, error)
            return
        log.warning("%s: pausing process %d for a second look", self.config.name, self.process.identity.pid)
        self.process.freeze()

    def let_on(self) -> None:
        """Continue what was stopped for a second look."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        if self.process is not None and self.paused_wall_seconds is None:
            self.process.thaw()
        guard.release()
        self._released = guard

    def pause_by_hand(self) -> bool:
        """Stop its process until `resume_by_hand`, also beyond this daemon; False: it does not run."""
        if self.process is None or self.state.stage not in (sv.Stage.LOADING, *sv.UP):
            return False
        self.call_off()
        if self.paused_wall_seconds is None:
            self._note_paused(self._clock.wall())
        self.process.freeze()
        return True

    def resume_by_hand(self) -> bool:
        """Continue it; False: it was not paused by hand."""
        if self.paused_wall_seconds is None:
            return False
        self._note_paused(None)
        if self.process is not None:
            self.process.thaw()
        return True

    def _note_paused(self, wall_seconds: float | None) -> None:
        self.paused_wall_seconds = wall_seconds
        if self._recorded is not None:
            self._amend(
                msgspec.structs.replace(self._recorded, paused_wall_seconds=wall_seconds), "that it is paused by hand"
            )

    def _continue(self) -> None:
        """It was told to end, which only a process that runs does."""
        self.let_on()
        if self.paused_wall_seconds is not None:
            self.resume_by_hand()

    def reconfigure(self, config: Backend) -> None:
        """Use this entry of the config from the next start on."""
        if preferred_plan(config) != preferred_plan(self.config):
            self.state = sv.reconfigure(self.state, preferred_plan(config))
        self.config = config

    def resume(self) -> None:
        """It was told to end for good: start it again once it has."""
        self._do(sv.restart(self.state, preferred_plan(self.config), self._clock.monotonic()))

    def retry(self) -> None:
        """Try again after the breaker tripped."""
        if self.state.stage == sv.Stage.BROKEN:
            self._do(sv.begin(self.state))

    def stop(self) -> None:
        """End it for good; `stopped` tells when that is done."""
        self._do(sv.stop(self.state, self._clock.monotonic()))

    @property
    def stopped(self) -> bool:
        """Whether no process is left and none will be started."""
        return self.state.stage in (sv.Stage.STOPPED, sv.Stage.BROKEN)

    def healthy(self) -> None:
        """It answered that it is ready."""
        if self.state.stage is sv.Stage.LOADING and self._started_at is not None:
            self.load_seconds, self._started_at = self._clock.monotonic() - self._started_at, None
            if self._recorded is not None:
                self._amend(
                    msgspec.structs.replace(self._recorded, load_seconds=self.load_seconds), "how long it loads"
                )
        self._do(sv.healthy(self.state, self._clock.monotonic()))

    def tick(self) -> None:
        """Time passed."""
        if self._held_at is not None and self._clock.monotonic() - self._held_at >= PAUSE_SECONDS:
            self.let_on()
        if self._released is not None and self._released.ended:
            self._released = None
        self._do(sv.tick(self.state, self._clock.monotonic()))

    @property
    def warm(self) -> backend_record.WarmBaseline | None:
        """What is recorded of how this very process was while it ran well."""
        return None if self._recorded is None else self._recorded.warm

    def keep_warm(self, warm: backend_record.WarmBaseline) -> None:
        """Record how the process was while it ran well, for the daemon that takes it over. Nothing without a record."""
        if self._recorded is not None:
            self._amend(msgspec.structs.replace(self._recorded, warm=warm), "how fast it is when warm")

    @property
    def warm_owed(self) -> bool:
        """Whether this very process is known to be not warmed yet, or not to the end."""
        return self._recorded is not None and self._recorded.warm_owed is True

    def note_warm_owed(self, owed: bool) -> None:
        """Record whether it is yet to be warmed, or that goes on, for the daemon that takes it over. Nothing without a record."""
        if self._recorded is not None and self._recorded.warm_owed is not owed:
            self._amend(msgspec.structs.replace(self._recorded, warm_owed=owed), "whether it is warm")

    def _amend(self, record: backend_record.BackendRecord, what: str) -> None:
        # Also when it cannot be written, which is then tried again no sooner than for the next change.
        self._recorded = record
        try:
            backend_record.write(record, self._directory)
        except OSError as error:
            log.info("%s: cannot record %s: %s", self.config.name, what, error.strerror)

    def let_go(self) -> None:
        """Stop watching without ending it: the next daemon takes it over."""
        self.let_on()
        if self.process is not None:
            self._loop.remove(self.process.fileno())
            self.process.close()
            self.process = None

    @abc.abstractmethod
    def _start(self, plan: sv.LaunchPlan) -> None:
        """Start it; what comes of it is told by `_follow` or `sv.failed_to_start`."""

    @abc.abstractmethod
    def _terminate(self) -> None:
        """Ask it to end."""

    def _do(self, moved: sv.Moved) -> None:
        self.state, commands = moved
        for command in commands:
            match command:
                case sv.Start(plan=plan):
                    self._start(plan)
                case sv.Terminate():
                    if self._uncounted:
                        self._count_restart()
                    self.before_end()
                    self._terminate()
                    self._continue()
                case sv.SaveSlots(plan=plan, until=until):
                    self._save(plan, until)
                case sv.RestoreSlots(until=until):
                    self._restore(until)
                case sv.Kill():
                    log.warning("%s: it does not end within its time; killing it", self.config.name)
                    self.kill()
                case sv.Say(name=name, message=message):
                    self.say(name, message)
                case sv.Note(message=message):
                    log.warning("%s", message)
        if self.conversations is not None and not self.state.holds and self.state.stage is not sv.Stage.SAVING:
            self.conversations.discard()

    def _save(self, plan: sv.LaunchPlan, until: float) -> None:
        def done(count: int) -> None:
            self._do(sv.saved(self.state, self._clock.monotonic(), count))

        if self.conversations is None:
            done(0)
        else:
            self.conversations.save(plan, until, done)

    def _restore(self, until: float) -> None:
        def done(kept: int, lost: int) -> None:
            self._do(sv.restored(self.state, self._clock.monotonic(), kept, lost))

        if self.conversations is None:
            done(0, 0)
        else:
            self.conversations.restore(until, done)

    def _count_restart(self) -> None:
        # Recorded with the process that is started: a restart that a killed daemon did not finish must not hold up the next one.
        self._uncounted = False
        self.relief_restarts = (*self.relief_restarts, self._clock.monotonic())[-backend_record.MOST_RESTARTS :]

    def _with(self, plan: sv.LaunchPlan) -> str:
        parts = []
        if self.sets("context"):
            parts.append(f"a context of {plan.context_length} tokens")
        if self.sets("prompt_cache_mib"):
            parts.append(f"a prompt cache of {plan.prompt_cache_mib} MiB")
        if self.sets("slots"):
            parts.append(f"{plan.slots} {'slot' if plan.slots == 1 else 'slots'}")
        if self.sets("checkpoints"):
            parts.append(f"{plan.checkpoints} checkpoints a slot")
        if self.sets("cache_type"):
            parts.append(f"a KV cache of {plan.cache_type}")
        return " with " + " and ".join(parts) if parts else ""

    def _record(self, process: spawn.SupervisedProcess, argv: Sequence[str], plan: sv.LaunchPlan) -> None:
        try:
            record = backend_record.BackendRecord(
                name=self.config.name,
                pid=process.identity.pid,
                start_ticks=process.identity.start_ticks,
                argv=tuple(argv),
                context_length=plan.context_length,
                boot_id=spawn.boot_id(),
                prompt_cache_mib=plan.prompt_cache_mib,
                started_wall_seconds=self._clock.wall(),
                relief_restarts_at=self.relief_restarts,
                warm_owed=True,
                slots=plan.slots,
                checkpoints=plan.checkpoints,
                cache_type=plan.cache_type,
            )
            backend_record.write(record, self._directory)
            self._recorded = record
        except OSError as error:
            log.warning(
                "%s: cannot record its process in %s (%s): if moetuned dies, the next one will not find it",
                self.config.name, self._directory, error.strerror,
            )  # fmt: skip

    def _adopt(self) -> bool:
        try:
            record = backend_record.read(self.config.name, self._directory)
            if record is None or record.boot_id != spawn.boot_id():
                return False
            # They count whether its process still runs or not. No restart lies ahead.
            now = self._clock.monotonic()
            kept = tuple(sorted(at for at in record.relief_restarts_at if at <= now))
            self.relief_restarts = kept[-backend_record.MOST_RESTARTS :]
            process = spawn.adopt(ProcessIdentity(record.pid, record.start_ticks))
        except (backend_record.RecordError, OSError) as error:
            log.warning("%s: whether an earlier moetuned started it cannot be told: %s", self.config.name, error)
            return False
        if process is None:
            return False
        plan = sv.LaunchPlan(
            record.context_length, record.prompt_cache_mib, record.slots, record.checkpoints, record.cache_type
        )
        self.load_seconds = record.load_seconds
        self.paused_wall_seconds = record.paused_wall_seconds
        self.state = sv.adopt(self.state, plan)
        if record.started_wall_seconds is not None:
            self.adopted_age_seconds = max(0.0, self._clock.wall() - record.started_wall_seconds)
        self.adopted = True
        self._recorded = record
        log.info(
            "%s: an earlier moetuned started it as process %d; taking it over%s",
            self.config.name, process.identity.pid, self._with(plan),
        )  # fmt: skip
        self._watch(process)
        return True

    def _watch(self, process: spawn.SupervisedProcess) -> None:
        self.process = process
        self._loop.add(process.fileno(), selectors.EVENT_READ, lambda _events: self._ended(process))

    def _ended(self, process: spawn.SupervisedProcess) -> None:
        descriptor = process.fileno()
        how = process.poll()
        if how is None:
            return
        self._loop.remove(descriptor)
        self.let_on()
        self.process, self._recorded, self.paused_wall_seconds = None, None, None
        log.info("%s: process %d %s", self.config.name, process.identity.pid, how)
        try:
            backend_record.remove(self.config.name, self._directory)
        except OSError as error:
            log.warning("%s: cannot remove its record: %s", self.config.name, error.strerror)
        self._do(sv.exited(self.state, self._told(how), self._clock.monotonic()))

    def _told(self, how: spawn.Exit) -> str:
        """How it ended, the end of a sentence."""
        return str(how)
