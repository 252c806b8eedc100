"""Carries out what `decide.supervision` orders for one backend: start, adopt, end, restart; never two processes."""

from __future__ import annotations

import logging
import os
import selectors
import signal
from collections.abc import Callable, Mapping, Sequence

import msgspec

from moetuned.daemon.loop import Loop
from moetuned.decide import supervision as sv
from moetuned.host import spawn
from moetuned.host.clock import Clock
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.config import Backend, SuperviseProcess
from moetuned.schema.event import EventName
from moetuned.state import backend_record

log = logging.getLogger(__name__)

Say = Callable[[EventName, str], None]
_UNTOLD = "%s: whether an earlier moetuned started it cannot be told by its record: %s"


class Prepared(msgspec.Struct, frozen=True):
    """What to start: the command with its placeholders, and their values. `said`: what is different, and why; `refused`: why not at all."""

    command: tuple[str, ...]
    plan: sv.LaunchPlan
    said: str | None = None
    refused: str | None = None


Prepare = Callable[[Backend, sv.LaunchPlan, Callable[[Prepared], None]], None]


def command_for(command: Sequence[str], model: str | None, plan: sv.LaunchPlan) -> list[str]:
    """The arguments with the placeholders replaced by the plan's values; nothing else is interpreted, nor a value again."""
    values = {
        "{model}": model or "",
        "{context}": str(plan.context_length),
        "{prompt_cache_mib}": str(plan.prompt_cache_mib if plan.prompt_cache_mib is not None else 0),
        "{slots}": str(plan.slots if plan.slots is not None else 1),
        "{checkpoints}": str(plan.checkpoints if plan.checkpoints is not None else 0),
        "{cache_type}": plan.cache_type or "f16",
    }
    return [_filled(argument, values) for argument in command]


def _filled(argument: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        before, found, after = argument.partition(placeholder)
        if found:
            return _filled(before, values) + value + _filled(after, values)
    return argument


def preferred_plan(config: Backend) -> sv.LaunchPlan:
    """What the config wants the backend to be started with."""
    return sv.LaunchPlan(
        config.context.preferred, config.prompt_cache_mib, config.slots, config.checkpoints, config.cache_type
    )


class Supervisor:
    """One backend's process. Belongs to the loop's thread; `say` gets the events."""

    def __init__(
        self,
        config: Backend,
        loop: Loop,
        clock: Clock,
        record_directory: str,
        say: Say,
        timing: sv.Timing = sv.Timing(),  # noqa: B008  frozen
        prepare: Prepare | None = None,
    ) -> None:
        """`prepare` is asked what to start before each start but that of relief; None: it is started as it is."""
        self.config = config
        self.say = say
        self._loop = loop
        self._clock = clock
        self._directory = record_directory
        self._template: Sequence[str] | None = None
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
        self._prepare = prepare
        self._preparing: object | None = None
        """The start that waits for what there is to start."""
        self._prepared: tuple[Sequence[str], Sequence[str]] | None = None
        """A command of the config, and what was made of it."""
        self.before_start: str | None = None
        """What was different at its last start from what the config asks for, and why; None: nothing."""
        self._recorded: backend_record.BackendRecord | None = None
        self._due: float | None = None
        """When the loop was last told to come back for what waits, monotonic seconds."""
        self.state = sv.Supervision(config.name, preferred_plan(config), timing)

    @property
    def identity(self) -> ProcessIdentity | None:
        """The running process; None while there is none."""
        return None if self.process is None else self.process.identity

    @property
    def absence(self) -> str | None:
        """Why it does not run, the end of a sentence; None when there is nothing to add."""
        return sv.absence(self.state, self._clock.monotonic())

    def sets(self, placeholder: str) -> bool:
        """Whether the command that runs (else: that would be started) takes this, e.g. "{context}"."""
        return any(placeholder in argument for argument in self._template or self._supervise.command)

    def start(self) -> None:
        """Take over the process an earlier daemon started, or start one."""
        if not self._adopt():
            self._do(sv.begin(self.state))

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

    def kill(self) -> None:
        """End it without asking again."""
        if self.process is not None:
            self.process.kill()

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

    def let_go(self) -> None:
        """Stop watching without ending it: the next daemon takes it over."""
        self._preparing = None
        if self.process is not None:
            self._loop.remove(self.process.fileno())
            self.process.close()
            self.process = None

    @property
    def _supervise(self) -> SuperviseProcess:
        supervise = self.config.supervise
        assert isinstance(supervise, SuperviseProcess)
        return supervise

    def _do(self, moved: sv.Moved) -> None:
        self.state, commands = moved
        for command in commands:
            match command:
                case sv.Start(plan=plan):
                    self._start(plan)
                case sv.Terminate():
                    if self.process is not None:
                        log.info("%s: asking process %d to end", self.config.name, self.process.identity.pid)
                        self.process.terminate()
                    elif self._preparing is not None:
                        self._preparing = None
                        self._do(sv.exited(self.state, "was not started", self._clock.monotonic()))
                case sv.Kill():
                    log.warning("%s: it does not end within its time; killing it", self.config.name)
                    self.kill()
                case sv.Say(name=name, message=message):
                    self.say(name, message)
                case sv.Note(message=message):
                    log.warning("%s", message)
        # Not left to the next look, which may be seconds away: memory that runs out does not wait for it.
        due = self.state.kill_at if self.state.retry_at is None else self.state.retry_at
        if due is not None and due != self._due:
            self._loop.call_at(due, self.tick)
        self._due = due

    def _start(self, plan: sv.LaunchPlan) -> None:
        command = self._supervise.command
        if self._prepare is None:
            self._spawn(plan, command)
            return
        if self.state.restart_began is not None and self._prepared is not None and self._prepared[0] == command:
            self._spawn(plan, self._prepared[1])  # It is known to fit: it has less than before.
            return
        mine = self._preparing = object()

        def done(prepared: Prepared) -> None:
            if self._preparing is not mine:
                return
            self._preparing = None
            self._begin(command, prepared)

        self._prepare(self.config, plan, done)

    def _begin(self, command: Sequence[str], prepared: Prepared) -> None:
        self.before_start = prepared.said
        if prepared.refused is not None:
            self._do(sv.failed_to_start(self.state, prepared.refused, self._clock.monotonic()))
            return
        if prepared.said is not None:
            log.warning("%s: %s", self.config.name, prepared.said)
        self._prepared = (command, prepared.command)
        self.state = msgspec.structs.replace(self.state, plan=prepared.plan)
        self._spawn(prepared.plan, prepared.command)

    def _spawn(self, plan: sv.LaunchPlan, command: Sequence[str]) -> None:
        supervise = self._supervise
        argv = command_for(command, self.config.model, plan)
        try:
            process = spawn.start(
                argv,
                environment=spawn.child_environment(os.environ, supervise.environment) | self._marks(plan),
                directory=supervise.directory,
                cgroup_directory=supervise.cgroup,
                log_path=supervise.log,
                limits=supervise.limits,
            )
        except spawn.StartError as error:
            self._do(sv.failed_to_start(self.state, str(error), self._clock.monotonic()))
            return
        self._template = command
        self.adopted, self.adopted_age_seconds = False, None
        self._started_at = self._clock.monotonic()
        log.info("%s: started as process %d%s", self.config.name, process.identity.pid, self._with(plan))
        self._watch(process)
        self._record(process, argv, plan)

    def _with(self, plan: sv.LaunchPlan) -> str:
        parts = []
        if self.sets("{context}"):
            parts.append(f"a context of {plan.context_length} tokens")
        if self.sets("{prompt_cache_mib}"):
            parts.append(f"a prompt cache of {plan.prompt_cache_mib} MiB")
        if self.sets("{slots}"):
            parts.append(f"{plan.slots} {'slot' if plan.slots == 1 else 'slots'}")
        if self.sets("{checkpoints}"):
            parts.append(f"{plan.checkpoints} checkpoints a slot")
        if self.sets("{cache_type}"):
            parts.append(f"a KV cache of {plan.cache_type}")
        return " with " + " and ".join(parts) if parts else ""

    def _record(self, process: spawn.SupervisedProcess, argv: list[str], plan: sv.LaunchPlan) -> None:
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
                "%s: cannot record its process in %s (%s): if moetuned dies, the next one forgets how often it was restarted",
                self.config.name, self._directory, error.strerror,
            )  # fmt: skip

    @property
    def _mark(self) -> str:
        return f"{self._directory}/{self.config.name}"

    def _marks(self, plan: sv.LaunchPlan) -> dict[str, str]:
        return {spawn.MARK: self._mark, spawn.PLAN: msgspec.json.encode(plan).decode()}

    def _adopt(self) -> bool:
        try:
            found = self._recorded_process() or self._unrecorded_process()
        except OSError as error:
            log.warning(_UNTOLD, self.config.name, error)
            return False
        if found is None:
            return False
        record, process = found
        plan = sv.LaunchPlan(
            record.context_length, record.prompt_cache_mib, record.slots, record.checkpoints, record.cache_type
        )
        self.load_seconds = record.load_seconds
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

    def _recorded_process(self) -> tuple[backend_record.BackendRecord, spawn.SupervisedProcess] | None:
        """The process that is recorded, if it still runs. Raises OSError."""
        try:
            record = backend_record.read(self.config.name, self._directory)
        except (backend_record.RecordError, OSError) as error:
            log.warning(_UNTOLD, self.config.name, error)
            return None
        if record is None or record.boot_id != spawn.boot_id():
            return None
        # They count whether its process still runs or not. No restart lies ahead.
        now = self._clock.monotonic()
        kept = tuple(sorted(at for at in record.relief_restarts_at if at <= now))
        self.relief_restarts = kept[-backend_record.MOST_RESTARTS :]
        process = spawn.adopt(ProcessIdentity(record.pid, record.start_ticks))
        return None if process is None else (record, process)

    def _unrecorded_process(self) -> tuple[backend_record.BackendRecord, spawn.SupervisedProcess] | None:
        """One that an earlier daemon started and could not record: its environment says whose it is. Raises OSError."""
        found = spawn.marked(self._mark)
        process = None if found is None else spawn.adopt(found[0])
        if found is None or process is None:
            return None
        identity, text = found
        try:
            plan = msgspec.json.decode(text, type=sv.LaunchPlan)
        except msgspec.MsgspecError:
            plan = self.state.plan
        record = backend_record.BackendRecord(
            name=self.config.name,
            pid=identity.pid,
            start_ticks=identity.start_ticks,
            argv=(),
            context_length=plan.context_length,
            boot_id=spawn.boot_id(),
            prompt_cache_mib=plan.prompt_cache_mib,
            relief_restarts_at=self.relief_restarts,
            slots=plan.slots,
            checkpoints=plan.checkpoints,
            cache_type=plan.cache_type,
        )
        return record, process

    def _watch(self, process: spawn.SupervisedProcess) -> None:
        self.process = process
        self._loop.add(process.fileno(), selectors.EVENT_READ, lambda _events: self._ended(process))

    def _ended(self, process: spawn.SupervisedProcess) -> None:
        descriptor = process.fileno()
        how = process.poll()
        if how is None:
            return
        self._loop.remove(descriptor)
        self.process, self._recorded = None, None
        log.info("%s: process %d %s", self.config.name, process.identity.pid, how)
        try:
            backend_record.remove(self.config.name, self._directory)
        except OSError as error:
            log.warning("%s: cannot remove its record: %s", self.config.name, error.strerror)
        self._do(sv.exited(self.state, self._told(how), self._clock.monotonic()))

    def _told(self, how: spawn.Exit) -> str:
        """How it ended; whoever sends SIGKILL when nobody meant to is most often the kernel."""
        if how.code == -signal.SIGKILL:
            return f"{how}: by the kernel's OOM killer, unless somebody did it by hand (dmesg tells)"
        return str(how)
