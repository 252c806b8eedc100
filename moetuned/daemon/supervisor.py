"""Carries out what `decide.supervision` orders for one backend: what every way of supervising has in common.

The ways are `daemon.process_supervisor`, of a child of the daemon, and `daemon.service_supervisor`, of a backend that another manager runs.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import selectors
import signal
from collections.abc import Callable, Sequence

import msgspec

from moetuned.daemon.loop import Loop
from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import Cause, Ending
from moetuned.host import spawn
from moetuned.host.clock import Clock
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.host.started_processes import find_started, left_in_session
from moetuned.schema.config import Backend
from moetuned.schema.event import EventName
from moetuned.state import backend_record

log = logging.getLogger(__name__)

Say = Callable[[EventName, str], None]

UNSETTLED_SECONDS = 2.0
"""A process that an earlier daemon was starting is looked for again until its start is so old: at first it has not got its environment."""


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
        self._looks_back_at: float | None = None
        """When it is looked again for what an earlier daemon began; until then nothing is started."""
        self._left: dict[int, ProcessHandle] = {}
        """What the process that ended left in its session and has not ended yet, by descriptor."""
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

    def counts_in(self, directory: str | None) -> None:  # noqa: B027  one that counts nothing needs not know
        """Be told the memory cgroup that its process is in now; None: none, or unknown."""

    @property
    def absence(self) -> str | None:
        """Why it does not run, the end of a sentence; None when there is nothing to add."""
        return sv.absence(self.state, self._clock.monotonic())

    def restart(self, plan: sv.LaunchPlan) -> None:
        """End it and start it again with `plan`, to free memory."""
        # Recorded with the process that is started: a restart that a killed daemon did not finish must not hold up the next one.
        self.relief_restarts = (*self.relief_restarts, self._clock.monotonic())[-backend_record.MOST_RESTARTS :]
        self._do(sv.restart(self.state, plan, self._clock.monotonic()))

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

    def hung(self) -> None:
        """It hangs, and that was told: end it and start it again."""
        self._do(sv.hung(self.state, self._clock.monotonic()))

    def let_go(self) -> None:
        """Stop watching without ending it: the next daemon takes it over."""
        for descriptor, handle in self._left.items():
            self._loop.remove(descriptor)
            handle.close()
        self._left = {}
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
        self._note_ending()
        for command in commands:
            match command:
                case sv.Start(plan=plan):
                    self._start(plan)
                case sv.Terminate():
                    self._terminate()
                case sv.Kill():
                    log.warning("%s: it does not end within its time; killing it", self.config.name)
                    self.kill()
                case sv.Say(name=name, message=message):
                    self.say(name, message)
                case sv.Note(message=message):
                    log.warning("%s", message)

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

    def _note_ending(self) -> None:
        """Before it is asked to end: a daemon that is killed then leaves a process that may not answer any more, and half a restart."""
        record, state = self._recorded, self.state
        if record is None or state.stage is not sv.Stage.STOPPING:
            return
        if not record.ending or record.next_plan != state.next_plan:
            relief_at = state.restart_began if state.restart_began in self.relief_restarts else None
            ending = msgspec.structs.replace(record, ending=True, next_plan=state.next_plan, relief_at=relief_at)
            self._amend(ending, "that it is being ended")

    def _intend(self, argv: Sequence[str], plan: sv.LaunchPlan, word: str) -> None:
        """Record that it is about to be started, with this word in its environment."""
        self._record(None, argv, plan, word)

    def _record(
        self,
        process: spawn.SupervisedProcess | None,
        argv: Sequence[str],
        plan: sv.LaunchPlan,
        word: str | None = None,
    ) -> None:
        try:
            record = backend_record.BackendRecord(
                name=self.config.name,
                pid=None if process is None else process.identity.pid,
                start_ticks=None if process is None else process.identity.start_ticks,
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
                start_word=word,
                intended_at=self._clock.monotonic() if process is None else None,
            )
            backend_record.write(record, self._directory)
            self._recorded = record
        except OSError as error:
            log.warning(
                "%s: cannot record its process in %s (%s): if moetuned dies, the next one will not find it",
                self.config.name, self._directory, error.strerror,
            )  # fmt: skip

    def _adopt(self) -> bool:
        """Take over what an earlier daemon started. False: nothing runs, or `_looks_back_at` says when that will be known."""
        self._looks_back_at = None
        now = self._clock.monotonic()
        try:
            record = backend_record.read(self.config.name, self._directory)
            if record is None or record.boot_id != spawn.boot_id():
                return False
            # They count whether its process still runs or not. No restart lies ahead.
            unfinished = (record.relief_at,) if record.ending and record.relief_at is not None else ()
            kept = tuple(sorted(at for at in (*record.relief_restarts_at, *unfinished) if at <= now))
            self.relief_restarts = kept[-backend_record.MOST_RESTARTS :]
            identity = backend_record.process_of(record)
            process = None if identity is None else spawn.adopt(identity)
            if process is None and self._unsettled(record, now):
                return False
        except (backend_record.RecordError, OSError, ValueError) as error:
            log.warning("%s: whether an earlier moetuned started it cannot be told: %s", self.config.name, error)
            return False
        if process is None:
            if record.ending and record.next_plan is not None:
                log.info("%s: an earlier moetuned ended it to restart it; doing the rest of that", self.config.name)
                self.state = msgspec.structs.replace(self.state, plan=record.next_plan)
            return False
        self._take_over(record, process)
        return True

    def _unsettled(self, record: backend_record.BackendRecord, now: float) -> bool:
        """Whether something of that start may still run, or come to run. Its main process does not; what it left is ended."""
        if record.start_word is None:
            return False
        left = find_started(record.start_word)[1]
        for identity in left:
            log.warning("%s: ending process %d, which an earlier start left behind", self.config.name, identity.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                handle = ProcessHandle(identity)
                handle.send(signal.SIGKILL)
                handle.close()
        settles = None if record.intended_at is None else record.intended_at + UNSETTLED_SECONDS
        young = settles is not None and now < settles <= now + UNSETTLED_SECONDS
        if left or young:
            self._looks_back_at = now + 1.0
        return self._looks_back_at is not None

    def _take_over(self, record: backend_record.BackendRecord, process: spawn.SupervisedProcess) -> None:
        plan = sv.LaunchPlan(
            record.context_length, record.prompt_cache_mib, record.slots, record.checkpoints, record.cache_type
        )
        self.load_seconds = record.load_seconds
        self.state = sv.adopt(self.state, plan)
        if record.started_wall_seconds is not None:
            self.adopted_age_seconds = max(0.0, self._clock.wall() - record.started_wall_seconds)
        self.adopted = True
        log.info(
            "%s: an earlier moetuned started it as process %d; taking it over%s",
            self.config.name, process.identity.pid, self._with(plan),
        )  # fmt: skip
        if record.pid is None:
            self._record(process, record.argv, plan, record.start_word)
        else:
            self._recorded = record
        self._watch(process)
        if record.ending:
            log.info("%s: that moetuned had asked it to end; doing the rest of that", self.config.name)
            next_plan = record.next_plan or preferred_plan(self.config)
            self._do(sv.restart(self.state, next_plan, self._clock.monotonic()))

    def _watch(self, process: spawn.SupervisedProcess) -> None:
        self.process = process
        self._loop.add(process.fileno(), selectors.EVENT_READ, lambda _events: self._ended(process))

    def _ended(self, process: spawn.SupervisedProcess) -> None:
        descriptor = process.fileno()
        how = process.poll()
        if how is None:
            return
        self._loop.remove(descriptor)
        identity, record = process.identity, self._recorded
        self.process, self._recorded = None, None
        log.info("%s: process %d %s", self.config.name, identity.pid, how)
        if record is not None and record.start_word is not None:
            self._end_left(identity, record.start_word, how)
        if not self._left:
            self._gone(identity, how)

    def _end_left(self, identity: ProcessIdentity, word: str, how: spawn.Exit) -> None:
        """What it left in its session goes with it; nothing is started while some of that lives."""
        try:
            left = left_in_session(identity.pid, word)
        except (OSError, ValueError) as error:
            log.warning("%s: what it left behind cannot be looked for: %s", self.config.name, error)
            return
        for handle in left:
            log.info("%s: ending process %d, which it left behind", self.config.name, handle.identity.pid)
            with contextlib.suppress(PermissionError):
                handle.send(signal.SIGKILL)
            self._left[handle.fileno()] = handle

            def ended(_events: int, handle: ProcessHandle = handle) -> None:
                self._left_ended(handle, identity, how)

            self._loop.add(handle.fileno(), selectors.EVENT_READ, ended)

    def _left_ended(self, handle: ProcessHandle, identity: ProcessIdentity, how: spawn.Exit) -> None:
        descriptor = handle.fileno()
        self._loop.remove(descriptor)
        self._left.pop(descriptor, None)
        handle.close()
        if not self._left:
            self._gone(identity, how)

    def _gone(self, identity: ProcessIdentity, how: spawn.Exit) -> None:
        """Nothing of it runs any more."""
        if self.state.stage is not sv.Stage.STOPPING or self.state.next_plan is None:
            self._forget_record()  # Else it is written over by the start that follows; until then it says what that is to be.
        self._find_cause(identity, how)

    def _forget_record(self) -> None:
        self._recorded = None
        try:
            backend_record.remove(self.config.name, self._directory)
        except OSError as error:
            log.warning("%s: cannot remove its record: %s", self.config.name, error.strerror)

    def _find_cause(self, identity: ProcessIdentity, how: spawn.Exit) -> None:  # noqa: ARG002  others look at it
        """Find out why it ended, and tell `_conclude`."""
        self._conclude(Ending(Cause.EXIT, str(how)))

    def _conclude(self, ending: Ending) -> None:
        self._do(sv.exited(self.state, ending.how, self._clock.monotonic(), ending.cause))
