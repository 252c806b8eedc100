"""Carries out what `decide.supervision` orders for one backend: what every way of supervising has in common.

The ways are `daemon.process_supervisor`, of a child of the daemon, and `daemon.service_supervisor`, of a backend that another manager runs.
"""

from __future__ import annotations

import abc
import logging
import selectors
from collections.abc import Callable

import msgspec

from moetuned.daemon.conversations import Conversations
from moetuned.daemon.cut_off_looks import CutOffLooks
from moetuned.daemon.left_behind import LeftBehind
from moetuned.daemon.loop import Loop
from moetuned.daemon.noted_restarts import NotedRestarts
from moetuned.daemon.restart_check import RestartCheck, Waiting, refusal
from moetuned.decide import supervision as sv
from moetuned.decide import supervision_words as words
from moetuned.decide.exit_cause import Cause, Ending
from moetuned.decide.launch_command import preferred_plan, words_of
from moetuned.host import spawn
from moetuned.host.clock import Clock
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend
from moetuned.schema.event import EventName
from moetuned.schema.supervision import RestartCause
from moetuned.state import backend_record

log = logging.getLogger(__name__)

Say = Callable[[EventName, str], None]


class Supervisor(NotedRestarts, abc.ABC):
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
        super().__init__(config, clock, record_directory)
        self.say = say
        self._loop = loop
        self.adopted = False
        """Whether an earlier daemon started the process that runs."""
        self.adopted_age_seconds: float | None = None
        """How long ago an earlier daemon started the process that was taken over; None when it was not, or is not known."""
        self.load_seconds: float | None = None
        """How long it took from its last start until it was ready; None: not seen yet."""
        self._started_at: float | None = None
        self.before_start: str | None = None
        """What was different at its last start from what the config asks for, and why; None: nothing."""
        self.conversations: Conversations | None = None
        """What saves its conversations over a restart; None: nothing does."""
        self._waiting: Waiting | None = None
        """A restart that waits. It counts once it begins."""
        self.check: RestartCheck | None = None
        """What looks whether it could start again before it is told to end; None: nothing does."""
        self._checked: Callable[[], None] | None = None
        """Begins the restart that waits for that look; None: none does."""
        self._drain_until = 0.0
        """Until when the restart that waits for that look may wait for requests, monotonic seconds."""
        self.before_end: Callable[[], None] = lambda: None
        """Called when its process is about to be told to end."""
        self.at_end = CutOffLooks()
        self._left = LeftBehind(config.name, loop)
        self.state = sv.Supervision(config.name, preferred_plan(config), timing)
        self._due: float | None = None
        """When the loop was last told to come back for what waits, monotonic seconds."""
        self._ran = False

    @abc.abstractmethod
    def sets(self, value: str) -> bool:
        """Whether a restart can change this one of `host.service.VALUES` of what runs (else: of what would be started)."""

    @property
    def unsettable(self) -> str | None:
        """Why a restart can change nothing of it now, one sentence; None: see `sets`."""
        return None

    @abc.abstractmethod
    def start(self) -> None:
        """Take over what runs, or start it, if that is moetuned's to do."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End it without asking again."""

    def knows(self, value: str) -> bool:
        """Whether `state.plan` says what it has of this value; else its own words do."""
        return self.sets(value)

    @property
    def by_search(self) -> bool:
        """Whether its process is found by a search, and told by `found`."""
        return False

    @abc.abstractmethod
    def found(self, identity: ProcessIdentity, said: BackendDescription) -> None:
        """A search found it: its process, and what its own command line and environment say. What is known better stays."""

    @property
    def before_restart(self) -> str | None:
        """What a restart under way waits for while it still answers, the end of a sentence; None: there is none."""
        if self._checked is not None:
            return "is restarted once it is known that it could start again"
        return words.before_restart(self.state, self._clock.monotonic())

    def counts_in(self, directory: str | None) -> None:
        """Be told the memory cgroup that its process is in now; None: none, or unknown."""

    @property
    def absence(self) -> str | None:
        """Why it does not run, the end of a sentence; None when there is nothing to add."""
        return words.absence(self.state, self._clock.monotonic())

    @property
    def who(self) -> str:
        """Who runs it, for people."""
        return "moetuned, as its child"

    def restart(
        self, plan: sv.LaunchPlan, why: str = "", *, seconds: float = 0.0, end_seconds: float | None = None
    ) -> None:
        """Start it again with `plan` to free memory, `why` is one sentence: once it works on no request, after so many seconds at the latest.

        `end_seconds`: so long it may take to end by itself where it is told so at once; None: as long as in any restart. Its conversations are saved, if they can be and there is time. Until its process is told to end, `call_off` takes that back.
        """
        self._drain(Waiting(RestartCause.RELIEF, why, plan), seconds, end_seconds)

    def give_back(self, plan: sv.LaunchPlan, why: str, *, seconds: float = 0.0) -> None:
        """The same to give back what relief took; that counts for no cool-down, and is taken back when it does not start."""
        self._drain(Waiting(RestartCause.RETURN, why, plan), seconds)

    def restart_by_hand(self, plan: sv.LaunchPlan, context: int | None = None, *, seconds: float = 0.0) -> None:
        """The same because somebody asked for it; that counts for no cool-down. `context`: the one that was asked for."""
        why = "somebody asked for it"
        if context is not None:
            why += f", with a context of {context} tokens"
        self._drain(Waiting(RestartCause.BY_HAND, why, plan, context), seconds)

    def _drain(self, waiting: Waiting, seconds: float, end_seconds: float | None = None) -> None:
        self._waiting, self._drain_until = waiting, self._clock.monotonic() + seconds

        def begin() -> None:
            self._checked = None
            self._drain_now(waiting, self._drain_until - self._clock.monotonic(), end_seconds)

        if self.check is None or self.process is None or self.state.stage not in (sv.Stage.LOADING, *sv.UP):
            begin()
            return
        self._checked = begin

        def looked(obstacle: str | None) -> None:
            if self._checked is begin:
                begin() if obstacle is None else self._obstruct(waiting, obstacle)

        self.check.ask(self.config, waiting, looked)

    def _drain_now(self, waiting: Waiting, seconds: float, end_seconds: float | None) -> None:
        plan, hurry = waiting.plan, waiting.cause is RestartCause.RELIEF
        kept = self.conversations is not None and self.conversations.go_on(self.state.plan, plan)
        now = self._clock.monotonic()
        if self.state.stage is not sv.Stage.READY or seconds <= 0:
            self._begin_restart(now)
        self._do(sv.drain(self.state, plan, now, seconds, saves=kept, hurry=hurry, end_seconds=end_seconds))

    def _obstruct(self, waiting: Waiting, why: str) -> None:
        """It is not restarted, and goes on answering. Said once as long as that is so, but to each who asks."""
        self._checked, self._waiting = None, None
        if self.check is None or not self.check.is_news(waiting.cause, why):
            return
        self._note_refusal(waiting.cause, waiting.why, self.state.plan, f"{why}; it goes on as it is")
        self.say(*refusal(self.config.name, waiting.cause, why))

    def _begin_restart(self, now: float) -> None:
        """The restart that waited is made now: it counts, and is remembered."""
        waiting, self._waiting, self._checked = self._waiting, None, None
        if waiting is None:
            return
        self._fallback = self.state.plan if waiting.cause is RestartCause.RETURN else None
        self.say(EventName.BACKEND_RESTARTING, f"{self.config.name} is restarted: {waiting.why}")
        if waiting.cause is RestartCause.RELIEF:
            self.chosen_context = None
            # Recorded with the process that is started: a restart that a killed daemon did not finish must not hold up the next one.
            self.relief_restarts = (*self.relief_restarts, now)[-backend_record.MOST_RESTARTS :]
        self.chosen_context = waiting.context or self.chosen_context
        self._note_restart(waiting.cause, waiting.why, self.state.plan, waiting.plan)

    @property
    def draining(self) -> bool:
        """Whether a restart waits, and can be called off."""
        return self._checked is not None or self.state.stage in (sv.Stage.DRAINING, sv.Stage.SAVING)

    @property
    def waits_because(self) -> RestartCause | None:
        """Because of what it is made; None: none waits."""
        return self._waiting.cause if self.draining and self._waiting is not None else None

    @property
    def restarting(self) -> bool:
        """Whether a restart waits, or was begun and is not over: it is neither healthy again nor known to have failed."""
        return self.draining or self.state.stage is sv.Stage.STOPPING or self.state.restart_began is not None

    def hasten(self, seconds: float) -> None:
        """The restart that waits may wait no longer than that."""
        now = self._clock.monotonic()
        self._drain_until = min(self._drain_until, now + seconds)
        self._do(sv.hasten(self.state, now, seconds))

    def call_off(self) -> None:
        """The restart that waits is not needed any more."""
        self._checked = None
        self._do((sv.call_off(self.state), ()))

    def hear(self, busy: int | None, asked_at: float | None) -> None:
        """Asked at `asked_at` (monotonic) it said that it works on so many requests; None: not known."""
        self._do(sv.heard(self.state, busy, asked_at, self._clock.monotonic()))

    def pause_by_hand(self) -> None:
        """See `Pausable`: not what is being ended. A restart that waits is called off."""
        if self.state.stage in (sv.Stage.LOADING, *sv.UP):
            self.call_off()
            super().pause_by_hand()

    def reconfigure(self, config: Backend) -> None:
        """Use this entry of the config from the next start on."""
        if preferred_plan(config) != preferred_plan(self.config):
            self.state = sv.reconfigure(self.state, preferred_plan(config))
            self.chosen_context = None
        self.config = config

    def resume(self) -> None:
        """It was told to end for good: start it again once it has."""
        self._note_restart(
            RestartCause.BY_HAND, "it is in the config again", self.state.plan, preferred_plan(self.config)
        )
        self._do(sv.restart(self.state, preferred_plan(self.config), self._clock.monotonic()))

    def retry(self) -> None:
        """Try again after the breaker tripped."""
        if self.state.stage == sv.Stage.BROKEN:
            now_has = self.state.plan
            self._note_restart(
                RestartCause.BY_HAND, "the config was read again", now_has, self.state.later_plan or now_has
            )
            self._do(sv.begin(self.state))

    def stop(self) -> None:
        """End it for good; `stopped` tells when that is done. A restart that waits is called off."""
        self.call_off()
        self._do(sv.stop(self.state, self._clock.monotonic()))

    @property
    def stopped(self) -> bool:
        """Whether no process is left and none will be started."""
        return self.state.stage in (sv.Stage.STOPPED, sv.Stage.BROKEN)

    def healthy(self) -> None:
        """It answered that it is ready."""
        if self.state.stage is sv.Stage.LOADING:
            self._note_took(self.state.plan)
            if self._started_at is not None:
                self.load_seconds, self._started_at = self._clock.monotonic() - self._started_at, None
        self._note_ready(self.load_seconds)
        self._do(sv.healthy(self.state, self._clock.monotonic()))

    def tick(self) -> None:
        """Time passed."""
        self._end_hold()
        self._do(sv.tick(self.state, self._clock.monotonic()))

    def _fall_back(self, why: str) -> None:
        """It does not run with what it was given back: it is started as before, and is given nothing any more."""
        assert self._fallback is not None
        log.warning("%s: started as before, with %d tokens: %s", self.config.name, self._fallback.context_length, why)
        self.state = msgspec.structs.replace(self.state, plan=self._fallback)
        self._fallback = None
        self.note_return(self.returned_at, why)

    @property
    def ends_hung(self) -> bool:
        """Whether it would be ended now if it hung: it is not being restarted anyway."""
        return self.state.stage is sv.Stage.READY

    def hung(self) -> None:
        """It hangs, and that was told: end it and start it again. A restart that waits is called off."""
        self.call_off()
        if self.state.stage is sv.Stage.READY:
            now_has = self.state.plan
            self._note_restart(RestartCause.EXIT, "it hung", now_has, self.state.later_plan or now_has)
        self._do(sv.hung(self.state, self._clock.monotonic()))

    def let_go(self) -> None:
        """Stop watching without ending it: the next daemon takes it over."""
        self._checked, self._waiting = None, None
        self.let_on()
        self._left.let_go()
        self.at_end.forget()
        if self.process is not None:
            self._loop.remove(self.process.fileno())
            self.process.close()
            self.process = None

    @abc.abstractmethod
    def _start(self, plan: sv.LaunchPlan) -> None:
        """Start it; what comes of it is told by `_watch` or `_failed_to_start`."""

    @abc.abstractmethod
    def _terminate(self) -> None:
        """Ask it to end."""

    @abc.abstractmethod
    def _ask(self, plan: sv.LaunchPlan) -> None:
        """Have its manager end it and start it with `plan`."""

    def _do(self, moved: sv.Moved) -> None:
        loads = self.state.stage is sv.Stage.LOADING
        self.state, commands = moved
        self._note_ending()
        for command in commands:
            match command:
                case sv.Start(plan=plan):
                    if self._ran and self._ended_how is not None:
                        self._note_restart(RestartCause.EXIT, self._ended_how, self.state.plan, plan)
                    self._ran, self._ended_how = True, None
                    self._start(plan)
                case sv.Terminate() | sv.Ask():
                    self._have_end(command, loads=loads)
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
        if not self.draining:
            self._waiting = None
        if self.conversations is not None and not self.state.holds and self.state.stage is not sv.Stage.SAVING:
            self.conversations.discard()
        self._come_back()

    def _have_end(self, command: sv.Terminate | sv.Ask, *, loads: bool) -> None:
        self.before_end()
        new = loads and not (self.adopted or self.managed)  # What others started may have answered for long.
        self.state = self.at_end.begin(self.state, self.process, new=new)
        if isinstance(command, sv.Ask):
            self._ask(command.plan)
        else:
            self._terminate()
        self._continue()

    def _come_back(self) -> None:
        """What waits is not left to the next look, which may be seconds away: memory that runs out does not wait for it."""
        state = self.state
        waits = [at for at in (state.kill_at, state.retry_at, state.drain_until, state.stage_until) if at is not None]
        due = min(waits, default=None)
        if due is not None and due != self._due:
            self._loop.call_at(due, self.tick)
        self._due = due

    def _save(self, plan: sv.LaunchPlan, until: float) -> None:
        assert self.conversations is not None  # or nothing is to be saved
        self.conversations.save(
            plan, until, lambda *found: self._do(sv.saved(self.state, self._clock.monotonic(), *found))
        )

    def _restore(self, until: float) -> None:
        assert self.conversations is not None
        self.conversations.restore(
            until, lambda *found: self._do(sv.restored(self.state, self._clock.monotonic(), *found))
        )

    def _failed_to_start(self, why: str) -> None:
        self._forget_record()
        self._ended_how = f"it could not be started: {why}"
        self._do(sv.failed_to_start(self.state, why, self._clock.monotonic()))

    def _note_ending(self) -> None:
        """Before it is asked to end: a daemon that is killed then leaves a process that may not answer any more, and half a restart."""
        record, state = self._recorded, self.state
        if state.stage is not sv.Stage.STOPPING:
            return
        self._begin_restart(state.restart_began or self._clock.monotonic())
        if record is None:
            return
        if not record.ending or record.next_plan != state.next_plan:
            ending = msgspec.structs.replace(
                record,
                ending=True,
                next_plan=state.next_plan,
                relief_at=state.restart_began if state.restart_began in self.relief_restarts else None,
                fallback=self._fallback,
                chosen_context=self.chosen_context,
                chosen_over=self._chosen_over,
            )
            self._amend(ending, "that it is being ended")

    def _adopt(self) -> bool:
        """Take over what an earlier daemon started. False: nothing runs, or `_looks_back_at` says when that will be known."""
        record, process = self._earlier(self._clock.monotonic())
        if record is not None and process is not None:
            self._take_over(record, process)
            return True
        if record is not None and self._looks_back_at is None:
            self._go_on(record)
        return False

    def _go_on(self, record: backend_record.BackendRecord) -> None:
        """Its process of an earlier daemon runs no more: what the next one is started with."""
        plan, fallback = self.state.plan, None if self.managed else record.fallback
        if self.chosen_context is not None:
            plan = msgspec.structs.replace(plan, context_length=self.chosen_context)
        if record.ending and record.next_plan is not None:
            log.info("%s: an earlier moetuned ended it to restart it; doing the rest of that", self.config.name)
            plan, self._fallback = record.next_plan, fallback
        elif fallback is not None and record.pid is None:
            plan, self._fallback = backend_record.plan_of(record), fallback
        self.state = msgspec.structs.replace(self.state, plan=plan)
        if fallback is not None and self._fallback is None:
            self._fallback = fallback
            self._fall_back("with what was given back it ended before it was seen to be ready")

    def _take_over(self, record: backend_record.BackendRecord, process: spawn.SupervisedProcess) -> None:
        plan = backend_record.plan_of(record)
        self._fallback = record.fallback
        self.load_seconds = record.load_seconds
        self.paused_wall_seconds = record.paused_wall_seconds
        self.state = sv.adopt(self.state, plan)
        if record.started_wall_seconds is not None:
            self.adopted_age_seconds = max(0.0, self._clock.wall() - record.started_wall_seconds)
        self.adopted = True
        log.info(
            "%s: it still runs as process %d, as an earlier moetuned had it; taking it over%s",
            self.config.name, process.identity.pid, words_of(plan, self.sets),
        )  # fmt: skip
        if record.pid is None:
            self._record(process, record.argv, plan, record.start_word)
        else:
            self._recorded = record
        self._watch(process)
        if record.ending:
            log.info("%s: that moetuned had asked it to end; doing the rest of that", self.config.name)
            self.at_end.uncounted = True
            self._end_again(record.next_plan or preferred_plan(self.config), hurry=record.relief_at is not None)

    def _end_again(self, next_plan: sv.LaunchPlan, *, hurry: bool) -> None:
        self._do(sv.restart(self.state, next_plan, self._clock.monotonic(), hurry=hurry))

    def _watch(self, process: spawn.SupervisedProcess) -> None:
        self.process, self._ran = process, True
        self._loop.add(process.fileno(), selectors.EVENT_READ, lambda _events: self._ended(process))

    def _ended(self, process: spawn.SupervisedProcess) -> None:
        descriptor = process.fileno()
        how = process.poll()
        if how is None:
            return
        self._loop.remove(descriptor)
        identity, record = process.identity, self._recorded
        self.process, self._recorded, self.paused_wall_seconds = None, None, None
        self.let_on()
        log.info("%s: process %d %s", self.config.name, identity.pid, how)
        if record is not None and record.start_word is not None:
            self._left.end(identity, record.start_word, lambda: self._gone(identity, how))
        else:
            self._gone(identity, how)

    def _gone(self, identity: ProcessIdentity, how: spawn.Exit) -> None:
        """Nothing of it runs any more."""
        self.state = self.at_end.end(self.state)
        if self.state.stage is not sv.Stage.STOPPING or self.state.next_plan is None:
            self._forget_record()  # Else it is written over by the start that follows; until then it says what that is to be.
        self._find_cause(identity, how)

    def _find_cause(self, identity: ProcessIdentity, how: spawn.Exit) -> None:  # noqa: ARG002  others look at it
        """Find out why it ended, and tell `_conclude`."""
        self._conclude(Ending(Cause.EXIT, str(how)))

    def _conclude(self, ending: Ending) -> None:
        if self.state.stage in (sv.Stage.LOADING, *sv.UP):
            self._ended_how = f"it {ending.how}"
        if self._fallback is not None and self.state.stage is sv.Stage.LOADING:
            self._fall_back(f"with what was given back it {ending.how} while it loaded")
        self._do(sv.exited(self.state, ending.how, self._clock.monotonic(), ending.cause))
