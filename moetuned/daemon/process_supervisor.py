"""A backend that is a child of the daemon: started with what fits, adopted from an earlier daemon, ended, restarted; never two processes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Sequence

import msgspec

from moetuned.daemon.loop import Loop
from moetuned.daemon.supervisor import Say, Supervisor
from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import Cause, Ending, Obstacle
from moetuned.decide.launch_command import command_for, words_of
from moetuned.host import spawn
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.clock import Clock
from moetuned.host.oom_counter import OomCounter
from moetuned.host.own_processes import hold_own
from moetuned.host.own_scope import is_scope_of
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.supervision import RestartCause

log = logging.getLogger(__name__)


class Prepared(msgspec.Struct, frozen=True):
    """What to start: the command with its placeholders, and their values.

    `said`: what is different, and why; `refused`: why not at all; `obstacle`: what must be gone first.
    """

    command: tuple[str, ...]
    plan: sv.LaunchPlan
    said: str | None = None
    refused: str | None = None
    obstacle: Obstacle | None = None


Prepare = Callable[[Backend, sv.LaunchPlan, Callable[[Prepared], None]], None]


class Ended(msgspec.Struct, frozen=True):
    """A process that ended by itself: what its supervisor knows of it.

    `command`: what it was started with; `oom_kills`: counted in its memory cgroup just before, None: unknown.
    """

    config: Backend
    identity: ProcessIdentity
    how: spawn.Exit
    command: tuple[str, ...]
    oom_kills: int | None


Examine = Callable[[Ended, Callable[[Ending], None]], None]
EXAMINE_SECONDS = 30.0
"""Why it ended is not waited for longer: perhaps a file system hangs. More than reading the kernel's log takes outside of the unit, where
systemd-run alone takes seconds on a slow or thrashing machine (`kernel_log.OUTSIDE_SECONDS`)."""
JUST_NOW_SECONDS = 30.0


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
        examine: Examine | None = None,
    ) -> None:
        """`prepare` is asked what to start before each start but that of relief; None: it is started as it is. `examine` is asked
        why it ended; None: nobody knows.
        """
        super().__init__(config, loop, clock, record_directory, say, timing)
        self._template: Sequence[str] | None = None
        self._prepare = prepare
        self._preparing: object | None = None
        """The start that waits for what there is to start."""
        self._prepared: tuple[Sequence[str], Sequence[str]] | None = None
        """A command of the config, and what was made of it."""
        self._change_told: tuple[Sequence[str], sv.LaunchPlan] | None = None
        """The changed start that was told last."""
        self._examine = examine
        self._examining: object | None = None
        """The ended process of which it is being found out why."""
        self._examined_by = 0.0
        self._ending_as_is = Ending(Cause.EXIT, "ended")
        self._argv: tuple[str, ...] = ()
        self._counter: OomCounter | None = None
        self._oom_kills: int | None = None
        self._oom_rose = (0.0, 0)
        """When that rose last, monotonic seconds, and by how many."""

    def sets(self, value: str) -> bool:
        """See `Supervisor`: its placeholder is in the command."""
        return any(f"{{{value}}}" in argument for argument in self._template or self._supervise.command)

    def start(self) -> None:
        """Take over the process an earlier daemon started, or start one."""
        if not self._looks_back():
            self._do(sv.begin(self.state))

    def _looks_back(self) -> bool:
        """Whether an earlier daemon's process was taken over, or has to be looked for again before anything is started."""
        if self._adopt():
            self._argv = () if self._recorded is None else self._recorded.argv
            return True
        if self._looks_back_at is not None:
            self.state = sv.wait(self.state, self._looks_back_at)
            return True
        return False

    def tick(self) -> None:
        """See `Supervisor`."""
        self._count()
        if self._examining is not None and self._clock.monotonic() >= self._examined_by:
            log.warning("%s: why it ended cannot be found out: that takes too long", self.config.name)
            self._conclude_late()
        super().tick()

    def counts_in(self, directory: str | None) -> None:
        """See `Supervisor`."""
        if directory is None or (self._counter is not None and self._counter.directory == directory):
            return
        self._stop_counting()
        self._counter = OomCounter(directory)
        self._oom_kills = self._counter.read()

    def _count(self) -> int | None:
        """Kills of any OOM killer in its memory cgroup just now; None: unknown. A large process takes seconds to die of one."""
        if self._counter is None or self._oom_kills is None:
            return None
        now, count = self._clock.monotonic(), self._counter.read()
        if count is None:
            return None
        if count > self._oom_kills:
            self._oom_rose = (now, count - self._oom_kills)
        self._oom_kills = count
        at, kills = self._oom_rose
        return kills if now - at <= JUST_NOW_SECONDS else 0

    def _stop_counting(self) -> None:
        if self._counter is not None:
            self._counter.close()
        self._counter, self._oom_kills, self._oom_rose = None, None, (0.0, 0)

    def kill(self) -> None:
        """See `Supervisor`: all that is in its scope with it."""
        if self.process is not None:
            for handle in self._with(self.process.identity):
                with contextlib.suppress(PermissionError):
                    handle.send(signal.SIGKILL)
                handle.close()
            self.process.kill()

    def _with(self, main: ProcessIdentity) -> list[ProcessHandle]:
        """See `Pausable`: what is in the scope that was made for it."""
        try:
            return hold_own(main, lambda part: is_scope_of(self.config.name, part)) if self._supervise.scope else []
        except OSError as error:
            log.warning("%s: what else runs in its scope is not known: %s", self.config.name, error.strerror or error)
            return []

    def found(self, identity: ProcessIdentity, said: BackendDescription) -> None:
        """See `Supervisor`: both are known."""

    def let_go(self) -> None:
        """See `Supervisor`."""
        self._preparing, self._examining = None, None
        self._stop_counting()
        super().let_go()

    @property
    def _supervise(self) -> SuperviseProcess:
        supervise = self.config.supervise
        assert isinstance(supervise, SuperviseProcess)
        return supervise

    def _terminate(self) -> None:
        if self.held:
            # It would have to go on to hear that it is to end, and would grow on meanwhile.
            log.warning("%s: memory runs out, so it is not asked to end; killing it", self.config.name)
            self.kill()
        elif self.process is not None:
            log.info("%s: asking process %d to end", self.config.name, self.process.identity.pid)
            self.process.terminate()
        elif self._preparing is not None:
            self._preparing = None
            self._forget_record()
            self._do(sv.exited(self.state, "was not started", self._clock.monotonic()))
        elif self._examining is not None:
            self._conclude_late()

    def _start(self, plan: sv.LaunchPlan) -> None:
        if self._looks_back_at is not None:
            if self._looks_back():
                return
            plan = self.state.plan
        command = self._supervise.command
        if self._prepare is None:
            self._spawn(plan, command)
            return
        relief = self.cause is RestartCause.RELIEF and self.state.restart_began is not None
        if relief and self._prepared is not None and self._prepared[0] == command:
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
        if prepared.obstacle is not None:
            self._forget_record()
            self._do(sv.obstructed(self.state, prepared.obstacle, self._clock.monotonic()))
            return
        self.before_start = prepared.said
        if self._fallback is not None and prepared.refused is not None:
            self._fall_back(prepared.refused)
            prepared = Prepared(prepared.command, self.state.plan)
        elif self._fallback is not None and prepared.plan != self.state.plan:
            # Also where a part of it fits: another restart for the rest would be one for nothing.
            self.note_return(self.returned_at, f"no more fits: {prepared.said}")
        if prepared.refused is not None:
            self._failed_to_start(prepared.refused)
            return
        if prepared.said is not None:
            self._tell_change(command, prepared)
        self._prepared = (command, prepared.command)
        self.state = msgspec.structs.replace(self.state, plan=prepared.plan)
        self._spawn(prepared.plan, prepared.command)

    def _tell_change(self, command: Sequence[str], prepared: Prepared) -> None:
        """Once, however often it is started so."""
        change = (prepared.command, prepared.plan)
        if change == (tuple(command), self.state.plan):
            log.warning("%s: %s", self.config.name, prepared.said)
        elif change != self._change_told:
            self._change_told = change
            self.say(EventName.BACKEND_START_CHANGED, f"{self.config.name}: {prepared.said}")

    def _spawn(self, plan: sv.LaunchPlan, command: Sequence[str]) -> None:
        supervise = self._supervise
        argv = command_for(command, self.config.model, plan)
        word = os.urandom(16).hex()
        self._record(None, argv, plan, word)  # with the word that finds it, should this daemon not live to see its pid
        self._stop_counting()
        # Until it is seen where it is: a scope of its own comes with it.
        self.counts_in(supervise.cgroup or memory_cgroup(os.getpid()).counted_in)
        try:
            process = spawn.start(
                argv,
                environment=spawn.child_environment(os.environ, {**supervise.environment, **self._marks(plan, word)}),
                directory=supervise.directory,
                cgroup_directory=supervise.cgroup,
                log_path=supervise.log,
                limits=supervise.limits,
                backend=self.config.name if supervise.scope else None,
            )
        except spawn.StartError as error:
            self._failed_to_start(str(error))
            return
        self._template, self._argv = command, tuple(argv)
        self.adopted, self.adopted_age_seconds = False, None
        self._started_at = self._clock.monotonic()
        self.state = sv.launched(self.state, plan)
        log.info("%s: started as process %d%s", self.config.name, process.identity.pid, words_of(plan, self.sets))
        self._record(process, argv, plan, word)
        self._watch(process)

    def _ask(self, plan: sv.LaunchPlan) -> None:
        raise AssertionError(f"nobody else manages {self.config.name}, so nobody can be asked for {plan}")

    def _find_cause(self, identity: ProcessIdentity, how: spawn.Exit) -> None:
        """See `Supervisor`. One that was told to end has no other cause."""
        counted = self._count()
        self._stop_counting()
        if self._examine is None or self.state.stage is sv.Stage.STOPPING:
            super()._find_cause(identity, how)
            return
        mine = self._examining = object()
        self._ending_as_is = Ending(Cause.EXIT, str(how))
        self._examined_by = self._clock.monotonic() + EXAMINE_SECONDS

        def done(ending: Ending) -> None:
            if self._examining is mine:
                self._examining = None
                self._conclude(ending)

        self._examine(Ended(self.config, identity, how, self._argv, counted), done)

    def _conclude_late(self) -> None:
        self._examining = None
        self._conclude(self._ending_as_is)
