"""Carries out what `decide.supervision` orders for one backend: start, adopt, end, restart; never two processes."""

from __future__ import annotations

import logging
import os
import selectors
from collections.abc import Callable

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


def command_for(command: list[str], model: str | None, plan: sv.LaunchPlan) -> list[str]:
    """The arguments with {model}, {context} and {prompt_cache_mib} replaced; nothing else is interpreted."""
    values = {
        "{model}": model or "",
        "{context}": str(plan.context_length),
        "{prompt_cache_mib}": str(plan.prompt_cache_mib if plan.prompt_cache_mib is not None else 0),
    }
    return [_filled(argument, values) for argument in command]


def _filled(argument: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        argument = argument.replace(placeholder, value)
    return argument


class Supervisor:
    """One backend's process. Belongs to the loop's thread; `say` gets the events."""

    def __init__(self, config: Backend, loop: Loop, clock: Clock, record_directory: str, say: Say) -> None:
        assert isinstance(config.supervise, SuperviseProcess)
        self.config = config
        self._loop = loop
        self._clock = clock
        self._directory = record_directory
        self._say = say
        self.process: spawn.SupervisedProcess | None = None
        plan = sv.LaunchPlan(config.context.preferred, config.prompt_cache_mib)
        self.state = sv.Supervision(config.name, plan)

    @property
    def identity(self) -> ProcessIdentity | None:
        """The running process; None while there is none."""
        return None if self.process is None else self.process.identity

    @property
    def intended_absence(self) -> bool:
        """Whether it is away because moetuned ended or restarts it."""
        return self.state.stage in (sv.Stage.STOPPING, sv.Stage.STOPPED) or self.state.restart_began is not None

    def start(self) -> None:
        """Take over the process an earlier daemon started, or start one."""
        if not self._adopt():
            self._do(sv.begin(self.state))

    def restart(self, plan: sv.LaunchPlan) -> None:
        """End it and start it again with `plan`."""
        self._do(sv.restart(self.state, plan, self._clock.monotonic()))

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
        self._do(sv.healthy(self.state, self._clock.monotonic()))

    def tick(self) -> None:
        """Time passed."""
        self._do(sv.tick(self.state, self._clock.monotonic()))

    def let_go(self) -> None:
        """Stop watching without ending it: the next daemon takes it over."""
        if self.process is not None:
            self._loop.remove(self.process.fileno())
            self.process.close()
            self.process = None

    def _do(self, moved: sv.Moved) -> None:
        self.state, commands = moved
        for command in commands:
            match command:
                case sv.Start(plan=plan):
                    self._start(plan)
                case sv.Terminate():
                    if self.process is not None:
                        log.info("%s: asking it to end", self.config.name)
                        self.process.terminate()
                case sv.Kill():
                    log.warning("%s: does not end; killing it", self.config.name)
                    self.kill()
                case sv.Say(name=name, message=message):
                    self._say(name, message)

    def _start(self, plan: sv.LaunchPlan) -> None:
        supervise = self.config.supervise
        assert isinstance(supervise, SuperviseProcess)
        argv = command_for(supervise.command, self.config.model, plan)
        try:
            process = spawn.start(
                argv,
                environment=spawn.child_environment(os.environ, supervise.environment),
                directory=supervise.directory,
                cgroup_directory=supervise.cgroup,
                log_path=supervise.log,
            )
        except spawn.StartError as error:
            self._do(sv.failed_to_start(self.state, str(error), self._clock.monotonic()))
            return
        log.info(
            "%s: started as process %d with a context of %d",
            self.config.name,
            process.identity.pid,
            plan.context_length,
        )
        self._watch(process)
        self._record(process, argv, plan)

    def _record(self, process: spawn.SupervisedProcess, argv: list[str], plan: sv.LaunchPlan) -> None:
        try:
            backend_record.write(
                backend_record.BackendRecord(
                    name=self.config.name,
                    pid=process.identity.pid,
                    start_ticks=process.identity.start_ticks,
                    argv=tuple(argv),
                    context_length=plan.context_length,
                    boot_id=spawn.boot_id(),
                    prompt_cache_mib=plan.prompt_cache_mib,
                    started_wall_seconds=self._clock.wall(),
                ),
                self._directory,
            )
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
            process = spawn.adopt(ProcessIdentity(record.pid, record.start_ticks))
        except (backend_record.RecordError, OSError) as error:
            log.warning("%s: %s", self.config.name, error)
            return False
        if process is None:
            return False
        plan = sv.LaunchPlan(record.context_length, record.prompt_cache_mib)
        self.state = sv.adopt(self.state, plan)
        log.info("%s: found it running as process %d; taking it over", self.config.name, process.identity.pid)
        self._watch(process)
        return True

    def _watch(self, process: spawn.SupervisedProcess) -> None:
        self.process = process
        self._loop.add(process.fileno(), selectors.EVENT_READ, lambda _events: self._ended(process))

    def _ended(self, process: spawn.SupervisedProcess) -> None:
        self._loop.remove(process.fileno())
        how = process.poll()
        self.process = None
        log.info("%s: process %d %s", self.config.name, process.identity.pid, how)
        try:
            backend_record.remove(self.config.name, self._directory)
        except OSError as error:
            log.warning("%s: cannot remove its record: %s", self.config.name, error.strerror)
        self._do(sv.exited(self.state, str(how), self._clock.monotonic()))
