"""A backend that is a child of the daemon: started with what fits, adopted from an earlier daemon, ended, restarted; never two processes."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence

import msgspec

from moetuned.daemon.loop import Loop
from moetuned.daemon.supervisor import Say, Supervisor
from moetuned.decide import supervision as sv
from moetuned.host import spawn
from moetuned.host.clock import Clock
from moetuned.schema.config import Backend, SuperviseProcess

log = logging.getLogger(__name__)


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


class ProcessSupervisor(Supervisor):
    """See `Supervisor`."""

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
        super().__init__(config, loop, clock, record_directory, say, timing)
        self._template: Sequence[str] | None = None
        self._prepare = prepare
        self._preparing: object | None = None
        """The start that waits for what there is to start."""
        self._prepared: tuple[Sequence[str], Sequence[str]] | None = None
        """A command of the config, and what was made of it."""

    def sets(self, value: str) -> bool:
        """See `Supervisor`: its placeholder is in the command."""
        return any(f"{{{value}}}" in argument for argument in self._template or self._supervise.command)

    def start(self) -> None:
        """Take over the process an earlier daemon started, or start one."""
        if not self._adopt():
            self._do(sv.begin(self.state))

    def kill(self) -> None:
        """See `Supervisor`."""
        if self.process is not None:
            self.process.kill()

    def let_go(self) -> None:
        """See `Supervisor`."""
        self._preparing = None
        super().let_go()

    @property
    def _supervise(self) -> SuperviseProcess:
        supervise = self.config.supervise
        assert isinstance(supervise, SuperviseProcess)
        return supervise

    def _terminate(self) -> None:
        if self.process is not None:
            log.info("%s: asking process %d to end", self.config.name, self.process.identity.pid)
            self.process.terminate()
        elif self._preparing is not None:
            self._preparing = None
            self._do(sv.exited(self.state, "was not started", self._clock.monotonic()))

    def _start(self, plan: sv.LaunchPlan) -> None:
        command = self._supervise.command
        if self._prepare is None:
            self._spawn(plan, command)
            return
        relieves = self.state.restart_began is not None and self._fallback is None
        if relieves and self._prepared is not None and self._prepared[0] == command:
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
        if self._fallback is not None and prepared.refused is not None:
            self._fall_back(prepared.refused)
            prepared = Prepared(prepared.command, self.state.plan)
        elif self._fallback is not None and prepared.plan != self.state.plan:
            # Also where a part of it fits: another restart for the rest would be one for nothing.
            self.note_return(self.returned_at, f"no more fits: {prepared.said}")
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
                environment=spawn.child_environment(os.environ, supervise.environment),
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

    def _told(self, how: spawn.Exit) -> str:
        """How it ended; whoever sends SIGKILL when nobody meant to is most often the kernel."""
        if how.code == -signal.SIGKILL:
            return f"{how}: by the kernel's OOM killer, unless somebody did it by hand (dmesg tells)"
        return str(how)
