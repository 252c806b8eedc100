"""What is known of one backend for the daemon that comes after this one, kept in its record while its process runs."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Sequence

import msgspec

from moetuned.decide import supervision as sv
from moetuned.decide.launch_command import preferred_plan
from moetuned.host import spawn
from moetuned.host.clock import Clock
from moetuned.host.processes import ProcessHandle, ProcessIdentity, command_line, variables
from moetuned.host.started_processes import OWNER_VARIABLE, VARIABLE, find_owned, find_started
from moetuned.schema.config import Backend
from moetuned.state import backend_record

log = logging.getLogger(__name__)

UNSETTLED_SECONDS = 2.0
"""A process that an earlier daemon was starting is looked for again until its start is so old: at first it has not got its environment."""
PLAN_VARIABLE = "MOETUNED_PLAN"
"""In the environment of what is started, what it is started with: for the next daemon where it could not be recorded."""
_UNTOLD = "%s: whether an earlier moetuned started it cannot be told by its record: %s"


class Recorded:
    """One backend, its process and its record. Belongs to the loop's thread."""

    managed = False
    """Whether another manager starts and ends it. What is recorded of a process under the one is none under the other."""

    def __init__(self, config: Backend, clock: Clock, record_directory: str) -> None:
        """`record_directory`: where it is recorded for the next daemon."""
        self.config = config
        self._clock = clock
        self._directory = record_directory
        self.process: spawn.SupervisedProcess | None = None
        self.relief_restarts: tuple[float, ...] = ()
        """Monotonic seconds of the restarts that were made to free memory, also those of an earlier daemon in this boot."""
        self.returned_at: float | None = None
        """Monotonic seconds of the last restart that gave back what relief took, also one of an earlier daemon in this boot."""
        self.return_blocked: str | None = None
        """Why none does any more; None: one may."""
        self.chosen_context: int | None = None
        """The context that somebody asked for by hand; until relief or the config wants another one."""
        self._fallback: sv.LaunchPlan | None = None
        """What it ran with before it was given more, until it is ready with that."""
        self._recorded: backend_record.BackendRecord | None = None
        self._looks_back_at: float | None = None
        """When it is looked again for what an earlier daemon began; until then nothing is started."""

    @property
    def identity(self) -> ProcessIdentity | None:
        """The running process; None while there is none."""
        return None if self.process is None else self.process.identity

    @property
    def record_path(self) -> str | None:
        """Where its process is recorded for the next daemon; None: it is not."""
        return None if self._recorded is None else backend_record.path_of(self.config.name, self._directory)

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

    def note_return(self, returned_at: float | None, blocked: str | None) -> None:
        """Record when something was given back last, and why nothing is any more, for the next daemon."""
        if (returned_at, blocked) == (self.returned_at, self.return_blocked):
            return
        self.returned_at, self.return_blocked = returned_at, blocked
        if self._recorded is not None:
            record = msgspec.structs.replace(self._recorded, returned_at=returned_at, return_blocked=blocked)
            self._amend(record, "that something was given back")

    @property
    def _chosen_over(self) -> sv.LaunchPlan | None:
        """What the config asks for while it has a context that somebody chose: another config forgets that choice."""
        return None if self.chosen_context is None else preferred_plan(self.config)

    def _note_ready(self, load_seconds: float | None) -> None:
        """It is ready with what it was given, which the next daemon need not take back."""
        self._fallback = None
        if self._recorded is not None:
            ready = msgspec.structs.replace(self._recorded, fallback=None, load_seconds=load_seconds)
            if ready != self._recorded:
                self._amend(ready, "that it is ready, and how long it loaded")

    def _amend(self, record: backend_record.BackendRecord, what: str) -> None:
        # Also when it cannot be written, which is then tried again no sooner than for the next change.
        self._recorded = record
        try:
            backend_record.write(record, self._directory)
        except OSError as error:
            log.info("%s: cannot record %s: %s", self.config.name, what, error.strerror)

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
                returned_at=self.returned_at,
                return_blocked=self.return_blocked,
                managed=self.managed,
                fallback=self._fallback,
                chosen_context=self.chosen_context,
                chosen_over=self._chosen_over,
            )
            backend_record.write(record, self._directory)
            self._recorded = record
        except OSError as error:
            log.warning(
                "%s: cannot record its process in %s (%s): if moetuned dies, the next one forgets how often it was restarted",
                self.config.name, self._directory, error.strerror,
            )  # fmt: skip

    def _forget_record(self) -> None:
        self._recorded = None
        try:
            backend_record.remove(self.config.name, self._directory)
        except OSError as error:
            log.warning("%s: cannot remove its record: %s", self.config.name, error.strerror)

    # What an earlier daemon left

    @property
    def _owner(self) -> str:
        """Names this backend of this daemon, and of the one that comes after it, among all processes."""
        return f"{self._directory}/{self.config.name}"

    def _marks(self, plan: sv.LaunchPlan, word: str) -> dict[str, str]:
        """What is put into the environment of a process that is started, by which it is found again."""
        return {VARIABLE: word, OWNER_VARIABLE: self._owner, PLAN_VARIABLE: msgspec.json.encode(plan).decode()}

    def _earlier(self, now: float) -> tuple[backend_record.BackendRecord | None, spawn.SupervisedProcess | None]:
        """What an earlier daemon recorded, and its process. `_looks_back_at` says when it is to be asked again."""
        self._looks_back_at = None
        record = None
        try:
            record = backend_record.read(self.config.name, self._directory)
            if record is not None and record.boot_id == spawn.boot_id():
                process = self._process_of(record, now)
                if process is not None or self._looks_back_at is not None:
                    return record, process
            else:
                record = None
        except (backend_record.RecordError, OSError, ValueError) as error:
            log.warning(_UNTOLD, self.config.name, error)
        if record is not None and record.managed != self.managed:
            record = None
        found = None if self.managed else self._unrecorded()
        return (record, None) if found is None else found

    def _process_of(self, record: backend_record.BackendRecord, now: float) -> spawn.SupervisedProcess | None:
        # They count whether its process still runs or not. No restart lies ahead.
        unfinished = (record.relief_at,) if record.ending and record.relief_at is not None else ()
        kept = tuple(sorted(at for at in (*record.relief_restarts_at, *unfinished) if at <= now))
        self.relief_restarts = kept[-backend_record.MOST_RESTARTS :]
        self.return_blocked = record.return_blocked
        if record.returned_at is not None and record.returned_at <= now:
            self.returned_at = record.returned_at
        if record.chosen_over == preferred_plan(self.config):
            self.chosen_context = record.chosen_context
        if record.managed != self.managed:
            return None
        identity = backend_record.process_of(record)
        process = None if identity is None else spawn.adopt(identity)
        if process is None:
            self._settle(record, now)
        return process

    def _settle(self, record: backend_record.BackendRecord, now: float) -> None:
        """Something of that start may still run, or come to run. Its main process does not; what it left is ended."""
        if record.start_word is None:
            return
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

    def _unrecorded(self) -> tuple[backend_record.BackendRecord, spawn.SupervisedProcess] | None:
        """One that an earlier daemon started and could not record: its environment says whose it is."""
        try:
            identity = find_owned(self._owner)
            process = None if identity is None else spawn.adopt(identity)
            if identity is None or process is None:
                return None
            said = variables(identity.pid, (PLAN_VARIABLE, VARIABLE))
            plan = msgspec.json.decode(said.get(PLAN_VARIABLE, ""), type=sv.LaunchPlan)
        except (OSError, ValueError) as error:
            log.warning(_UNTOLD, self.config.name, error)
            return None
        record = backend_record.BackendRecord(
            name=self.config.name,
            pid=identity.pid,
            start_ticks=identity.start_ticks,
            argv=command_line(identity.pid) or (),
            context_length=plan.context_length,
            boot_id=spawn.boot_id(),
            prompt_cache_mib=plan.prompt_cache_mib,
            relief_restarts_at=self.relief_restarts,
            slots=plan.slots,
            checkpoints=plan.checkpoints,
            cache_type=plan.cache_type,
            start_word=said.get(VARIABLE),
        )
        return record, process
