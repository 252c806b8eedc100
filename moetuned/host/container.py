"""A backend in a container of docker or podman, made anew with other values by the user's own words for `docker run`.

Root's containers on this machine. Every restart is recorded before its first step and carried on, or taken back, by the next `look` or
`restart` if the daemon dies in between (`decide.container_change` says how). A container that moetuned did not make is never removed: it is
kept, stopped, as NAME-before-moetuned. Longest: a restart 6 minutes if every step takes as long as it may, of which the backend is away
for a minute and a half; a look 40 s where nothing was interrupted.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence

import msgspec

from moetuned.decide import container_change as cc
from moetuned.decide.exit_cause import OOM_KILLED
from moetuned.decide.launch_command import fill, used_names
from moetuned.host.engine_cli import Ask, Engine
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.own_processes import hold_own
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.host.service import VALUES, Keeper, ServiceError, ServiceState
from moetuned.schema.container import BACKEND_LABEL, TOKEN_LABEL, ContainerChange, ContainerFacts, ContainerRecord

log = logging.getLogger(__name__)

_MOST_STEPS = 16
"""More than any change has."""
_VALUE = re.compile(r"[A-Za-z0-9_]{1,32}")
_CGROUP_LIMIT_BYTES = 64 << 10
_CHANGING = ("restarting", "removing", "stopping")
_BY_SIGNAL = 128
_PEACEFUL = (0, _BY_SIGNAL + signal.SIGTERM)
_REAL = RealFS()


class _UnfinishedError(ServiceError):
    """A change stays as far as it is; the next look carries it on or takes it back."""


class Container:
    """A `host.service.Service`."""

    def __init__(
        self,
        backend: str,
        engine: str,
        container: str,
        run: Sequence[str],
        model: str | None,
        preferred: Mapping[str, str],
        keeper: Keeper[ContainerRecord],
        ask: Ask | None = None,
        fs: HostFS = _REAL,
        new_token: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        """`run`: what comes after `docker run --detach --name CONTAINER`, with placeholders.

        `preferred`: values of `VALUES` for what moetuned has not set yet. `ask`: how to reach the engine's command line; None: the
        system's own.
        """
        self._backend = backend
        self._engine = Engine(engine, ask)
        self._names = cc.names_for(container)
        self._run = tuple(run)
        self._model = model
        self._preferred = dict(preferred)
        self._keeper = keeper
        self._fs = fs
        self._new_token = new_token
        self._ending = False
        self._running_id: str | None = None
        """Of the container that was found running last, whose name its cgroup has."""

    @property
    def what(self) -> str:
        """For people: the container llama."""
        return f"the container {self._names.main}"

    def look(self) -> ServiceState:
        """What the engine says; a restart that was interrupted is carried on, or taken back, before. Raises ServiceError."""
        self._settled()
        one = self._engine.look(self._names.main)
        return ServiceState(None, ended=f"has no container {self._names.main}") if one is None else self._state(one)

    def settable(self) -> frozenset[str]:
        """Those whose placeholder occurs in the words."""
        return used_names(self._run, VALUES)

    def restart(self, values: Mapping[str, str]) -> None:
        """Make the container anew with these values. Raises ServiceError; ValueError for what is not settable."""
        if unknown := sorted(set(values) - self.settable()):
            raise ValueError(f"{self.what} cannot be given {', '.join(unknown)}")
        if wrong := sorted(name for name, value in values.items() if not _VALUE.fullmatch(value)):
            raise ValueError(f"{self.what} cannot be given {wrong[0]} {values[wrong[0]]!r}")
        record = self._settled()
        if record.change is not None:
            raise ServiceError(f"{self.what} was not restarted: what the last restart left is not cleared away yet")
        seen = self._engine.named(self._all_names)
        own = any(one.name == self._names.main and cc.is_own(one, record) for one in seen)
        now = {**self._preferred, **(record.values if own else {}), **values}
        used = {name: now[name] for name in self.settable() if name in now}
        try:
            change = cc.begin(record, self._names, seen, self._new_token(), self._words(used), used)
        except cc.Blocked as error:
            raise ServiceError(f"{self.what} was not restarted: {error}") from error
        self._record(record := msgspec.structs.replace(record, change=change))
        _, failure = self._carry_out(record, change)
        if failure is not None:
            raise ServiceError(f"{self.what} was not restarted: {failure}")
        if change.old_id is not None and not change.old_own:
            log.warning(
                "%s: the container that was there before is kept, stopped, as %s; to go back, take the backend out of the config, then: %s",
                self._backend, self._names.kept, "; ".join(cc.undo_commands(self._engine.name, self._names, change.old_policy)),
            )  # fmt: skip

    @property
    def told_to_end(self) -> bool:
        """While the old one is being stopped: before, the new one may yet turn out not to be possible."""
        return self._ending

    def kill(self, main: ProcessIdentity) -> None:
        """Nothing: all that runs in a container ends with its first process."""

    def hold(self, main: ProcessIdentity) -> list[ProcessHandle]:
        """See `Service.hold`: all that is in the cgroup of the container that was found running last."""
        running = self._running_id
        try:
            return [] if running is None else hold_own(main, lambda part: running in part, self._fs)
        except OSError as error:
            log.warning("%s: what else runs in %s is not known: %s", self._backend, self.what, error.strerror or error)
            return []

    @property
    def _all_names(self) -> tuple[str, ...]:
        return (self._names.main, self._names.new, self._names.own_old, self._names.kept)

    def _words(self, used: Mapping[str, str]) -> tuple[str, ...]:
        if missing := sorted(self.settable().difference(used)):
            raise ServiceError(f"{self.what} was not restarted: nobody says which {missing[0]} it is to have")
        return tuple(fill(self._run, {**used, "model": self._model or ""}))

    def _settled(self) -> ContainerRecord:
        """The record, once nothing is half done any more."""
        try:
            record = self._keeper.read()
        except OSError as error:
            raise ServiceError(f"whether a restart of {self.what} is half done cannot be told: {error}") from error
        if record.change is None:
            return record
        change = cc.take_up(record.change)
        log.warning(
            "%s: a restart of %s was interrupted; it is %s",
            self._backend, self.what, "taken back" if change.undoing else "carried on",
        )  # fmt: skip
        record, failure = self._carry_out(record, change)
        if failure is not None:
            log.warning("%s: the restart was taken back: %s", self._backend, failure)
        return record

    def _carry_out(self, record: ContainerRecord, change: ContainerChange) -> tuple[ContainerRecord, str | None]:
        """Do what is left of the change; what is on record then, and why it had to be taken back.

        Raises ServiceError where neither could be done: then the change stays on record.
        """
        failure = None
        if not change.undoing:
            try:
                left = self._walk(record, change)
            except _UnfinishedError:
                raise
            except (ServiceError, cc.Blocked) as error:
                failure = str(error)
            else:
                if left is not None:
                    log.warning("%s: %s was restarted, but %s", self._backend, self.what, left)
                    return record, None
                return self._noted(cc.done(record, change)), None
            change = msgspec.structs.replace(change, undoing=True)
            self._noted(msgspec.structs.replace(record, change=change))
        try:
            self._walk(record, change)
        except (ServiceError, cc.Blocked) as error:
            why = f"was not restarted ({failure}), and" if failure else "is half restarted, and"
            raise ServiceError(f"{self.what} {why} could not be put back: {error}; {self._left(change)}") from error
        return self._noted(cc.taken_back(record, change)), failure

    def _left(self, change: ContainerChange) -> str:
        again = "this is tried again whenever it is looked at"
        if change.old_id is None:
            return again
        aside = self._names.aside(change.old_own)
        return f"the one before is there as {aside} or {self._names.main} and nothing of it is lost; {again}"

    def _walk(self, record: ContainerRecord, change: ContainerChange) -> str | None:
        """Take one step after the other; what is left to be done although the new one was started, None: nothing.

        Raises _UnfinishedError where going back would be wrong, ServiceError and Blocked where it would not.
        """
        started = False
        for _ in range(_MOST_STEPS):
            try:
                step = cc.next_step(change, self._names, self._engine.named(self._all_names))
            except ServiceError as error:
                if started:
                    return str(error)
                raise _UnfinishedError(
                    f"{self.what}: {error}; a restart under way is finished or taken back later"
                ) from error
            if step is None:
                return None
            if not change.undoing and not change.committed and cc.touches_old(step):
                change = msgspec.structs.replace(change, committed=True)
                self._record(msgspec.structs.replace(record, change=change))
            try:
                self._take(step, change)
            except ServiceError as error:
                if started:
                    return str(error)
                if isinstance(step, cc.Stop) and not change.undoing:
                    # It was told to end and may do so any moment: it must not be taken for one that goes on to run.
                    raise _UnfinishedError(f"{self.what}: {error}; it is restarted as soon as it has ended") from error
                raise
            if isinstance(step, cc.Start):
                if change.undoing:
                    return None  # Whether it goes on to run is its own matter.
                started = True
        raise ServiceError(f"{self._engine.name} says that it did {type(step).__name__.lower()}, but it did not")

    def _take(self, step: cc.Step, change: ContainerChange) -> None:
        match step:
            case cc.Create():
                labels = (f"{BACKEND_LABEL}={self._backend}", f"{TOKEN_LABEL}={change.token}")
                self._engine.create(self._names.new, labels, change.words)
            case cc.Hold(id=one, policy=policy):
                self._hold(one, policy)
            case cc.Stop(id=one):
                self._ending = not change.undoing
                try:
                    self._engine.stop(one)
                finally:
                    self._ending = False
            case cc.Rename(id=one, to=name):
                self._engine.rename(one, name)
            case cc.Start(id=one):
                self._engine.start(one)
            case cc.Remove(id=one):
                self._engine.remove(one)

    def _hold(self, one: str, policy: str) -> None:
        try:
            self._engine.set_policy(one, policy)
        except ServiceError as error:
            raise ServiceError(
                f"{self._engine.name} would start the container of before again at the next boot (--restart {cc.STARTED_AT_BOOT}) and "
                f"cannot be told not to ({error}); rename or remove it yourself, and moetuned makes it anew"
            ) from error

    def _record(self, record: ContainerRecord) -> None:
        try:
            self._keeper.write(record)
        except OSError as error:
            raise ServiceError(f"{self.what} was not restarted: that cannot be recorded: {error}") from error

    def _noted(self, record: ContainerRecord) -> ContainerRecord:
        """Record what is so already: without, the same is found out again by the next look."""
        try:
            self._keeper.write(record)
        except OSError as error:
            log.warning("%s: what was done with %s cannot be recorded: %s", self._backend, self.what, error)
        return record

    def _state(self, one: ContainerFacts) -> ServiceState:
        if one.pid is not None:
            return self._running(one, one.pid)
        changing = one.status in _CHANGING
        if changing or one.status not in ("exited", "dead", "stopped"):
            told = None if changing else f"has a container that is {one.status}, not started"
            return ServiceState(None, changing=changing, ended=told, oom_killed=one.oom_killed)
        return ServiceState(
            None,
            ended=_ended(one),
            stopped_by_owner=not one.oom_killed and _was_asked_to_end(one),
            oom_killed=one.oom_killed,
        )

    def _running(self, one: ContainerFacts, pid: int) -> ServiceState:
        """The pid is believed only if that process is in a cgroup of the container: an engine may run in another pid namespace."""
        try:
            cgroups = self._fs.read_text(f"/proc/{pid}/cgroup", _CGROUP_LIMIT_BYTES)
        except (FileNotFoundError, ProcessLookupError):
            return ServiceState(None, changing=True)
        except OSError as error:
            raise ServiceError(f"process {pid} of {self.what} cannot be looked at: {error.strerror}") from error
        if one.id not in cgroups:
            raise ServiceError(
                f"{self._engine.name} says that {self.what} runs as process {pid}, but that process is not in the container's cgroup "
                "here; moetuned has to run on the machine itself, beside the engine"
            )
        self._running_id = one.id
        return ServiceState(pid)


def _was_asked_to_end(one: ContainerFacts) -> bool:
    """Whether somebody wanted it to end.

    Podman tells. Docker does not, but it would have started again what ended by itself under --restart always or unless-stopped; and
    a server does not end with code 0, or by SIGTERM, unless it was asked to.
    """
    if one.stopped_by_user is not None:
        return one.stopped_by_user
    return one.policy in ("always", "unless-stopped") or one.exit_code in _PEACEFUL


def _ended(one: ContainerFacts) -> str | None:
    if one.oom_killed:
        return OOM_KILLED
    if one.exit_code is None:
        return None
    number = one.exit_code - _BY_SIGNAL
    if number == signal.SIGKILL:
        return "was ended by SIGKILL: by the kernel's OOM killer, unless somebody did it by hand (dmesg tells)"
    if number in set(signal.Signals):
        return f"was ended by {signal.Signals(number).name}"
    return f"exited with code {one.exit_code}"
