"""A backend that another manager runs, a unit, a container or a script: followed, and restarted through its manager only.

`decide.managed` decides, `host.service` does it, in a lane of its own: a container or a script may take minutes. When the daemon ends, the backend runs on.
"""

from __future__ import annotations

import logging
import time

import msgspec

from moetuned.daemon.loop import Loop
from moetuned.daemon.supervisor import Say, Supervisor
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import managed
from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import OOM_KILLED, Cause
from moetuned.decide.launch_command import values_of
from moetuned.host import spawn
from moetuned.host.clock import Clock
from moetuned.host.processes import CLOCK_TICKS, ProcessHandle, ProcessIdentity, identify
from moetuned.host.service import Service, ServiceError, ServiceState
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseUnit
from moetuned.state import backend_record

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""The manager is asked this often while no process is known,"""
LOOK_LATER_SECONDS = 10.0
"""this often once that has been so for a minute,"""
_SOON_SECONDS = 60.0
_LOOKS_FOR_FOUND = 2
"""So many looks must not name a process that was found in its unit: the first may have been under way when it was found."""
_MOST_AWAITED = 64
LOOK_AGAIN_SECONDS = 10.0
"""this often while it is not known what a restart can change,"""
LOOK_SELDOM_SECONDS = 60.0
"""and this often while one runs: that it ends is seen at once anyway."""


class ServiceSupervisor(Supervisor):
    """See `Supervisor`."""

    managed = True

    def __init__(
        self,
        config: Backend,
        loop: Loop,
        clock: Clock,
        record_directory: str,
        say: Say,
        workers: Workers,
        service: Service,
        timing: sv.Timing = sv.Timing(),  # noqa: B008  frozen
    ) -> None:
        """`workers` does what the manager is asked."""
        super().__init__(config, loop, clock, record_directory, say, timing)
        self.state = msgspec.structs.replace(self.state, managed=True)
        self._workers = workers
        self._service = service
        self._settable: frozenset[str] = frozenset()
        self._next_look = clock.monotonic()
        self._absent_since = clock.monotonic()
        self._exit: tuple[ProcessIdentity, spawn.Exit] | None = None
        """Its process ended, and what its manager says about that is not known yet."""
        self._back_by: float | None = None
        """By when the next process of one that somebody has restarted must have been seen, monotonic seconds; None: none is waited for."""
        self._look_again = False
        """Whether its process ended while its manager was being asked."""
        self._looks = 0
        self._by_search = False
        self._unknown: str | None = None
        self._unsettable: str | None = None
        """Why a restart can change nothing now, one sentence; None: see `_settable`."""
        self._closed = False
        self._unfinished: tuple[sv.LaunchPlan, bool] | None = None
        """What an earlier daemon had begun to restart it with, and whether to free memory, until it is known what became of that."""
        self._awaited: dict[ProcessIdentity, tuple[int, float]] = {}
        """Processes in its unit that its manager has not named yet: `_unnamed_looks` when each was found, and monotonic seconds until when it may."""
        self._unnamed_looks = 0
        """How often its manager, when it was not changing anything, was asked."""
        self._asked_of_running = False
        """Whether its process ran when the last restart was asked for."""
        self._hung: ProcessIdentity | None = None
        """The last process that hung and that its manager was asked to restart for that."""

    @property
    def by_search(self) -> bool:
        """See `Supervisor`: when its manager knows no process."""
        return self._by_search

    @property
    def who(self) -> str:
        """See `Supervisor`."""
        return self._service.what

    @property
    def _restarting(self) -> str:
        """The key of the work that asks for a restart."""
        return f"restarting {self.who}"

    @property
    def unknown(self) -> str | None:
        """Why it is not known whether it runs and what a restart can change, a sentence; None: its manager told."""
        return self._unknown or (None if self._looks else f"{self.who} was not asked about yet")

    @property
    def absence(self) -> str | None:
        """See `Supervisor`."""
        if self.state.stage is sv.Stage.STOPPED and not self._closed:
            if self._unknown is not None:
                return f"is not known to run: {self._unknown}"
            if self._back_by is not None:
                return f"is not running: somebody stops {self.who} or has it restarted"
            return f"is not running; moetuned leaves it to {self.who} to start it" if self._looks else None
        return super().absence

    def sets(self, value: str) -> bool:
        """See `Supervisor`."""
        return value in self._settable

    @property
    def unsettable(self) -> str | None:
        """See `Supervisor`."""
        return self._unsettable

    def knows(self, value: str) -> bool:  # noqa: ARG002
        """See `Supervisor`: it was started by others, or by words of theirs."""
        return False

    def start(self) -> None:
        """See `Supervisor`: what runs is taken over, nothing is started."""
        self._adopt()
        self._look()

    def resume(self) -> None:
        """See `Supervisor`: it was never told to end."""
        self._closed = False
        self.start()

    def retry(self) -> None:
        """See `Supervisor`: its manager does."""

    def reconfigure(self, config: Backend) -> None:
        """See `Supervisor`: what it runs with is its manager's until relief restarts it."""
        self.config = config

    def stop(self) -> None:
        """See `Supervisor`: it is not moetuned's to end."""
        self._closed, self._back_by = True, None
        self.let_go()
        self._do((managed.left_alone(self.state), ()))

    @property
    def stopped(self) -> bool:
        """See `Supervisor`: whether it is left alone."""
        return self._closed

    @property
    def ends_hung(self) -> bool:
        """See `Supervisor`. Once for each process: one that its manager does not restart would be asked for at every look."""
        return super().ends_hung and self.identity is not None and self.identity != self._hung

    def hung(self) -> None:
        """See `Supervisor`."""
        self._hung = self.identity
        if self.state.stage in sv.UP:
            self.say(EventName.BACKEND_RESTARTING, f"{self.config.name} is restarted: it hung")
        super().hung()

    def kill(self) -> None:
        """See `Supervisor`. By identity alone: by the time it comes to that, the next one may run."""
        if self.process is not None:
            self._service.kill(self.process.identity)  # first, as long as what belongs to it can be told by it
            self.process.kill()

    def _with(self, main: ProcessIdentity) -> list[ProcessHandle]:
        """See `Pausable`: what its manager says is its own."""
        return self._service.hold(main)

    def tick(self) -> None:
        """See `Supervisor`."""
        if self._closed:
            return
        self._end_hold()
        now = self._clock.monotonic()
        asked, refusal = self.state.stage is sv.Stage.STOPPING, self.state.refusal
        self._do(managed.tick(self.state, now, self.who, told_to_end=self._service.told_to_end))
        if asked and self.state.stage is sv.Stage.STOPPED:
            self._note_failure(refusal or managed.overdue(self.who))
        if asked:
            self._note_over()
        if now >= self._next_look:
            self._look()

    def found(self, identity: ProcessIdentity, said: BackendDescription) -> None:
        """See `Supervisor`."""
        if self.by_search and identity != self.identity:
            self._take(identity)
        context = said.context_length or self.state.plan.context_length
        plan = sv.LaunchPlan(context, said.prompt_cache_mib, said.slots, None, said.cache_type_k)
        self.state = msgspec.structs.replace(self.state, plan=plan)

    def awaits(self, found: ProcessIdentity, services: frozenset[str]) -> bool:
        """Whether a found process, in the cgroups of these units, may be its own and its manager has yet to say so: it is asked at once.

        What it does not name then is watched as a backend that nobody configured.
        """
        own = self.config.supervise
        if self._closed or self.process is not None or not isinstance(own, SuperviseUnit) or own.unit not in services:
            return False
        now = self._clock.monotonic()
        if len(self._awaited) >= _MOST_AWAITED and found not in self._awaited:
            self._awaited.clear()
        looks, until = self._awaited.setdefault(found, (self._unnamed_looks, now + managed.APPEAR_SECONDS))
        # A unit that systemd starts again and again is changing for good, and what an earlier start of it has left would never be shown.
        if self._unnamed_looks - looks >= _LOOKS_FOR_FOUND or now >= until:
            return False
        self._next_look = now
        return True

    # Asking its manager

    def _look(self) -> None:
        now = self._clock.monotonic()
        if self.process is not None:
            self._absent_since = now
        absent = LOOK_SECONDS if now - self._absent_since < _SOON_SECONDS else LOOK_LATER_SECONDS
        self._next_look = now + (absent if self.process is None else LOOK_SELDOM_SECONDS)
        service = self._service

        def look() -> tuple[ServiceState, frozenset[str], str | None]:
            state = service.look()
            try:
                return state, service.settable(), None
            except ServiceError as error:  # e.g. its files have changed and are not read yet: it runs all the same
                return state, frozenset(), str(error)

        asked = self._workers.submit(Lane.MANAGER, f"asking about {self.who}", look, self._looked)
        self._look_again = not asked and self._exit is not None

    def _looked(
        self, found: tuple[ServiceState, frozenset[str], str | None] | None, error: BaseException | None
    ) -> None:
        if self._closed:
            return
        self._looks += 1
        if found is None or not found[0].changing:  # While it starts its main process may not be known.
            self._unnamed_looks += 1
        if self._look_again:  # What was asked before its process ended says nothing of how.
            self._look()
            return
        if found is None:
            text = str(error)
            if text != self._unknown:
                log.warning("%s: what %s does is not known: %s", self.config.name, self.who, text)
            self._unknown = text
            self._conclude_exit(ServiceState(pid=None))
            return
        self._unknown = None
        state, settable, why_not = found
        if why_not is None:
            self._settable = settable
        else:
            # What could be set before is kept: an answer that was only late must not make a restart for nothing of the next one, and
            # one that cannot change it is refused by the manager, with the reason.
            self._next_look = min(self._next_look, self._clock.monotonic() + LOOK_AGAIN_SECONDS)
        if why_not != self._unsettable and why_not is not None:
            log.warning("%s: a restart can change nothing: %s", self.config.name, why_not)
        self._unsettable = why_not
        self._by_search = not state.pid_known
        self._finish(state)
        if self._by_search:
            return
        self._conclude_exit(state)
        self._follow_comeback(state)
        if state.pid is None and not state.changing:
            self._conclude_restart(state)
        if state.pid is None or (self.identity is not None and self.identity.pid == state.pid):
            return
        identity = identify(state.pid)
        if identity is not None:
            self._take(identity)

    def _conclude_exit(self, state: ServiceState) -> None:
        """Its process ended: that is told with what its manager says about it, if that says anything."""
        known, self._exit = self._exit, None
        if known is None or self.process is not None:
            return
        identity, ended = known
        how = state.ended or (OOM_KILLED if state.oom_killed else str(ended))
        if self.state.stage in (sv.Stage.LOADING, *sv.UP):
            self._ended_how = f"it {how}"
        now, cause = self._clock.monotonic(), Cause.OOM_KILLED if state.oom_killed else Cause.EXIT
        goes_on = state.on_purpose and state.pid != identity.pid
        wanted = state.stopped_by_owner or goes_on
        self._do(managed.ended(self.state, how, now, self.who, by_owner=wanted, goes_on=goes_on, cause=cause))
        self._back_by = now + managed.APPEAR_SECONDS if goes_on else None

    def _follow_comeback(self, state: ServiceState) -> None:
        """A restart that somebody asked for may end in nothing: a mistake in its files, say. The owner may also have stopped it only."""
        if self._back_by is None or state.pid is not None:
            return
        late = self._clock.monotonic() >= self._back_by
        if state.stopped_by_owner:
            self._back_by = None
        elif late or not state.on_purpose:
            self._back_by = None
            how = None if state.on_purpose else state.ended  # what is said of how it ended is of the one before
            self._do(managed.stays_away(self.state, how, self.who))

    def _conclude_restart(self, state: ServiceState) -> None:
        """None runs, and none is being started: what became of the restart under way is known, unless its manager is still at it."""
        asked, refusal = self.state.stage is sv.Stage.STOPPING, self.state.refusal
        if not asked or self._workers.in_flight(self._restarting):
            return
        # What a refused restart itself told to end looks as if somebody had stopped it.
        by_owner = state.stopped_by_owner and (refusal is None or not self._asked_of_running)
        self._do(managed.absent(self.state, by_owner=by_owner))
        if self.state.stage is sv.Stage.STOPPED:
            self._note_failure(refusal or managed.STOPPED_MEANWHILE)
        self._note_over()

    def _go_on(self, record: backend_record.BackendRecord) -> None:
        """See `Supervisor`: whether the next one runs, or will, is its manager's to say."""
        super()._go_on(record)
        if record.ending and record.next_plan is not None:
            self._unfinished = record.next_plan, record.relief_at is not None

    def _end_again(self, next_plan: sv.LaunchPlan, *, hurry: bool) -> None:
        """See `Supervisor`: what its manager makes of that restart is asked before; it may be under way, or even done."""
        self._unfinished = (next_plan, hurry)

    def _finish(self, state: ServiceState) -> None:
        """Do what is left of a restart that an earlier daemon had begun: where the process from before does not run, wait for the next one."""
        unfinished, self._unfinished = self._unfinished, None
        own = None if self.identity is None else self.identity.pid
        if unfinished is None or (state.pid_known and state.pid not in (None, own)):
            return
        now, (plan, hurry) = self._clock.monotonic(), unfinished
        if state.changing or own is None:
            self.state = managed.goes_on(self.state, plan, now, hurry=hurry)
        elif not state.pid_known or state.pid is not None:
            self.at_end.uncounted = not state.pid_known  # A script may have been told to before.
            self._do(sv.restart(self.state, plan, now, hurry=hurry))

    def _take(self, identity: ProcessIdentity) -> None:
        process = spawn.adopt(identity)
        if process is None:
            return
        first = self._looks <= 1 and self.state.stage is sv.Stage.STOPPED
        # Where the manager's word comes before the end of the one before is seen.
        self.state = self.at_end.end(self.state)
        self._back_by = None
        self._awaited.clear()
        self.let_go()
        self._do(managed.appeared(self.state))
        self.adopted, self.adopted_age_seconds, self._started_at = first, None, None
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - identity.start_ticks / CLOCK_TICKS
        if first:
            self.adopted_age_seconds = max(0.0, age)
        else:
            self._started_at = self._clock.monotonic() - max(0.0, age)
        log.info("%s: is process %d of %s", self.config.name, identity.pid, self.who)
        self._watch(process)
        self._record(process, (), self.state.plan)

    def _find_cause(self, identity: ProcessIdentity, how: spawn.Exit) -> None:
        """See `Supervisor`: its manager is asked."""
        if self.state.stage is sv.Stage.STOPPING or self.by_search:
            now = self._clock.monotonic()
            self._do(managed.ended(self.state, str(how), now, self.who))
        else:
            self._exit = identity, how
        self._look()

    def _ask(self, plan: sv.LaunchPlan) -> None:
        self._asked_of_running = self.process is not None
        values = {name: text for name, text in values_of(plan).items() if name in self._settable}
        log.info("%s: asking for a restart of %s with %s", self.config.name, self.who, values)
        service = self._service
        if not self._workers.submit(Lane.MANAGER, self._restarting, lambda: service.restart(values), self._asked):
            self._refused("an earlier restart has not been answered yet")

    def _asked(self, _done: None, error: BaseException | None) -> None:
        if self._closed:
            return
        if error is not None:
            self._refused(str(error))
        else:
            self.state = managed.answered(self.state, self._clock.monotonic())
        self._look()

    def _refused(self, why: str) -> None:
        if self.process is not None:
            self._ended(self.process)  # The loop may not have come to it yet.
        if self.state.stage is not sv.Stage.STOPPING:  # The next process was seen before the answer came.
            log.warning("%s: after it was asked for a restart: %s", self.config.name, why)
            return
        self._note_failure(why)
        self._do(managed.refused(self.state, why, self._clock.monotonic(), running=self.process is not None))
        self._note_over()

    def _note_over(self) -> None:
        """A later daemon must not take a restart that was given up for one to finish, whether its process from before runs on or not."""
        record = self._recorded
        if self.state.stage is sv.Stage.STOPPED:
            self._forget_record()
        elif record is not None and record.ending and self.state.stage is not sv.Stage.STOPPING:
            over = msgspec.structs.replace(record, ending=False, next_plan=None, relief_at=None)
            self._amend(over, "that its restart is given up")

    def _start(self, plan: sv.LaunchPlan) -> None:
        raise AssertionError(f"{self.who} starts {self.config.name}, not moetuned, with {plan}")

    def _terminate(self) -> None:
        raise AssertionError(f"{self.who} ends {self.config.name}, not moetuned")
