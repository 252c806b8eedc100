"""Which backends are watched, and which process each of them is: from the config, from supervision, from what is found running."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from moetuned import backends
from moetuned.daemon import discovery, returning, warm_baseline
from moetuned.daemon.conversations import Conversations
from moetuned.daemon.loop import Loop
from moetuned.daemon.matching import match
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.probing import Probing
from moetuned.daemon.process_supervisor import Examine, Prepare, ProcessSupervisor
from moetuned.daemon.relieving import conversation_facts
from moetuned.daemon.restart_check import RestartCheck
from moetuned.daemon.service_supervisor import ServiceSupervisor
from moetuned.daemon.services import service_of
from moetuned.daemon.supervisor import Supervisor
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import relief
from moetuned.decide import supervision as sv
from moetuned.host.backend_http import loopback_address
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.clock import Clock
from moetuned.host.open_connections import open_connections
from moetuned.host.processes import ProcessIdentity, has_ended, is_alive
from moetuned.host.service import Service
from moetuned.host.spawn import boot_id
from moetuned.parse.redact_command import redact_arguments
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.config import Backend, Config
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseNone, SuperviseProcess
from moetuned.state import backend_record

log = logging.getLogger(__name__)

DISCOVER_SECONDS = 5.0
DISCOVER_YOUNG_SECONDS = 1.0
YOUNG_SECONDS = 10.0
"""A supervised process may first be a script, or a loader, that becomes the backend: so long it is looked for each second."""
CGROUP_SECONDS = 10.0
FORGET_SECONDS = 600.0
"""A backend that nobody configured is forgotten this long after it ended."""
MOST_WATCHED = 32
"""Configured and found together; whoever starts more processes that look like backends gets no more of the daemon's memory."""


class Say(Protocol):
    """Makes known what a supervisor has to say."""

    def __call__(self, name: EventName, backend: str, message: str, /, *, restarting: bool) -> None:
        """`restarting`: whether a restart of it goes on."""
        ...


class Roster:
    """Belongs to the loop's thread. `say(name, backend, message)` gets what supervisors have to say."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        workers: Workers,
        care: ModelCare,
        probing: Probing,
        record_directory: str,
        say: Say,
        timing: sv.Timing = sv.Timing(),  # noqa: B008  frozen
        prepare: Prepare | None = None,
        examine: Examine | None = None,
        state_directory: str = "",
        service_of: Callable[[Backend, str], Service] = service_of,
        leave_open: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """`prepare` is asked what to start before each start; None: they are started as the config says. `examine` is asked why one
        ended; None: nobody knows. `service_of` finds the manager of a backend that moetuned does not start itself, which keeps its
        records in `state_directory`. `leave_open` hears of each that is watched no more, or anew.
        """
        self._state_directory = state_directory
        self._service_of = service_of
        self._leave_open = leave_open
        self._loop = loop
        self._clock = clock
        self._workers = workers
        self._care = care
        self._probing = probing
        self._records = record_directory
        self._say = say
        self._timing = timing
        self._prepare = prepare
        self._examine = examine
        self._watched: dict[str, Watched] = {}
        self._leaving: list[Supervisor] = []
        self._baselines = warm_baseline.Records(record_directory)
        self._finder = discovery.Finder()
        self._discover = True
        self._next_discovery = clock.monotonic()
        self._full_said = False
        self.notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Watched]:
        """All that are watched, in the order in which they came."""
        return iter(tuple(self._watched.values()))

    def get(self, name: str) -> Watched | None:
        """The backend of this name."""
        return self._watched.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all that are watched."""
        return tuple(self._watched)

    # Configuration

    def configure(self, config: Config) -> None:
        """Make what is watched the same as the config: new backends begin, those that are gone from it end."""
        self.notes = ()
        self._discover = config.watch.discover
        self._finder.configure(config.backends)
        wanted = {backend.name: backend for backend in config.backends}
        for watched in self:
            gone = watched.name not in wanted if watched.config is not None else not self._discover
            if gone:
                log.info("%s: %s", watched.name, "no longer in the config" if watched.config else "no longer watched")
                self._drop(watched)
        for name, backend in wanted.items():
            known = self._watched.get(name)
            if known is None or known.config is None:
                if known is not None:
                    self._drop(known)
                self._begin(backend)
            elif known.config != backend:
                self._change(known, backend)
            if (supervisor := self._watched[name].supervisor) is not None:
                supervisor.retry()
        self._next_discovery = self._clock.monotonic()

    def allow_returns(self) -> None:
        """Another config: what a return led to under the last one speaks no longer against the next."""
        for watched in self:
            returning.allow(watched)

    def note_orphans(self) -> None:
        """Say which backends an earlier daemon left running that the config does not name; they are not ended."""
        try:
            names = [name for name in backend_record.names(self._records) if name not in self._watched]
        except OSError as error:
            log.warning("cannot look into %s: %s", self._records, error.strerror)
            return
        for name in names:
            adopted = _recorded_process(name, self._records)
            if adopted is not None:
                note = f"{name}: an earlier moetuned started it as process {adopted}; it is not in the config, so it is left running"
                log.warning("%s", note)
                self.notes = (*self.notes, note)

    def _begin(self, config: Backend) -> None:
        watched = Watched(config.name, config, self._clock.monotonic())
        self._watched[config.name] = watched
        self._care.learn_model(watched, config.model)
        if isinstance(config.supervise, SuperviseNone):
            return

        def say(name: EventName, message: str) -> None:
            supervisor = watched.supervisor
            if name is EventName.RELIEF_EXHAUSTED and watched.detector.memory.memory not in relief.NEAR:
                # Memory is enough meanwhile, which was told before: nothing would end it.
                name = EventName.BACKEND_NOT_RESTARTED
            self._say(
                name,
                watched.name,
                message,
                restarting=supervisor is not None and supervisor.state.restart_began is not None,
            )

        leaving = next((each for each in self._leaving if each.config.name == config.name), None)
        if leaving is not None and isinstance(config.supervise, SuperviseProcess):
            # It is still ending: the same supervisor starts it again, so that there never are two processes.
            self._leaving.remove(leaving)
            leaving.say = say
            leaving.reconfigure(config)
            watched.supervisor = leaving
            self._tie(watched, leaving)
            watched.relief = relief.ReliefState(restarted_at=leaving.relief_restarts)
            returning.restore(watched, leaving)
            leaving.resume()
            return
        supervisor = self._supervisor(config, say)
        watched.supervisor = supervisor
        self._tie(watched, supervisor)
        supervisor.start()
        # Cool-down and budget outlive the daemon that made the restarts; no other start counts for them.
        watched.relief = relief.ReliefState(restarted_at=supervisor.relief_restarts)
        returning.restore(watched, supervisor)
        if supervisor.warm is not None:
            warm_baseline.restore(watched, supervisor.warm, self._clock.monotonic())

    def _tie(self, watched: Watched, supervisor: Supervisor) -> None:
        """What it does for its backend that needs to know more than the process."""
        supervisor.before_end = lambda: self._care.end(watched)
        supervisor.at_end.connections = lambda: _connections(watched, supervisor)
        supervisor.check = RestartCheck(
            watched.name, self._loop, self._clock, self._workers, lambda: watched.model_files
        )
        supervisor.conversations = Conversations(watched.name, self._workers, lambda: conversation_facts(watched))

    def _supervisor(self, config: Backend, say: Callable[[EventName, str], None]) -> Supervisor:
        if isinstance(config.supervise, SuperviseProcess):
            return ProcessSupervisor(
                config, self._loop, self._clock, self._records, say, self._timing, self._prepare, self._examine
            )
        service = self._service_of(config, self._state_directory)
        return ServiceSupervisor(
            config, self._loop, self._clock, self._records, say, self._workers, service, self._timing
        )

    def _change(self, watched: Watched, config: Backend) -> None:
        """A changed entry. A running backend that stays supervised is not restarted for it."""
        old = watched.config
        kept = old is not None and watched.supervisor is not None and _stays_supervised(old, config)
        if old is None or watched.supervisor is None or not kept:
            self._drop(watched)
            self._begin(config)
            return
        watched.config = config
        if config.url != old.url:
            said = watched.description
            watched.url = config.url if said is None else discovery.address_of(said, config.url)
            self._probing.aim(watched)
        watched.supervisor.reconfigure(config)
        if watched.process is None:
            self._care.learn_model(watched, config.model)
        else:
            note = f"{config.name}: its changed entry is used when it is started the next time"
            log.info("%s", note)
            self.notes = (*self.notes, note)

    def _drop(self, watched: Watched) -> None:
        self._care.end(watched)
        self._probing.end(watched)
        self._watched.pop(watched.name, None)
        self._leave_open(watched.name)
        if watched.supervisor is not None and not watched.supervisor.stopped:
            watched.supervisor.stop()
        if watched.supervisor is not None and not watched.supervisor.stopped:
            self._leaving.append(watched.supervisor)

    # What runs

    def follow(self, now: float) -> None:
        """Bring what is watched in line with what runs."""
        for watched in self:
            if watched.supervisor is not None:
                watched.supervisor.tick()
                self._follow_supervisor(watched, watched.supervisor, now)
            if watched.process is not None and watched.sample is not None and watched.sample.process_gone:
                self._forget_if_ended(watched, now)
            if watched.process is not None and now >= watched.next_cgroup:
                # A starting backend joins its cgroup a moment after it is started, and anybody may move it later.
                watched.next_cgroup = now + (1.0 if watched.description is None else CGROUP_SECONDS)
                watched.cgroup = memory_cgroup(watched.process.pid)
                if watched.supervisor is not None and watched.process == watched.main:
                    watched.supervisor.counts_in(watched.cgroup.counted_in)
            if watched.discovered and watched.gone_since is not None and now - watched.gone_since > FORGET_SECONDS:
                log.info("%s: ended %d min ago; forgotten", watched.name, FORGET_SECONDS // 60)
                self._drop(watched)
        for supervisor in self._leaving:
            supervisor.tick()
        self._leaving = [each for each in self._leaving if not each.stopped]

    def _follow_supervisor(self, watched: Watched, supervisor: Supervisor, now: float) -> None:
        if supervisor.identity == watched.main:
            if watched.process is None and watched.main is not None:
                self._take(watched, supervisor, now)
            return
        if watched.process is not None:
            self._forget_process(watched, now)
        if watched.main is not None:
            watched.forget_baseline()
        watched.main = supervisor.identity
        if watched.main is not None:
            self._take(watched, supervisor, now)

    def _take(self, watched: Watched, supervisor: Supervisor, now: float) -> None:
        """The supervisor's own process is the backend until a process is found in its session that looks like one."""
        assert watched.main is not None
        watched.follow_process(watched.main, now)
        self._probing.aim(watched)
        self._care.learn_model(watched, supervisor.config.model)
        watched.young_until = now + YOUNG_SECONDS
        self._next_discovery = min(self._next_discovery, now + DISCOVER_YOUNG_SECONDS)

    def _forget_process(self, watched: Watched, now: float) -> None:
        if watched.hung_told:  # Nobody else sees to the end of that: a restart by its owner tells nothing.
            self._leave_open(watched.name)
        watched.forget_process(now)

    def _forget_if_ended(self, watched: Watched, now: float) -> None:
        if watched.process is not None and has_ended(watched.process):
            if watched.supervisor is None:
                log.info("%s: process %d ended", watched.name, watched.process.pid)
                self._baselines.forget(watched.process)
            self._forget_process(watched, now)

    # Finding

    def discover(self, now: float) -> None:
        """Look for running backends every few seconds, where that can tell anything."""
        if now < self._next_discovery:
            return
        young = any(each.description is None and now < each.young_until for each in self)
        self._next_discovery = now + (DISCOVER_YOUNG_SECONDS if young else DISCOVER_SECONDS)
        if self._discover or any(_is_open(each) for each in self):
            self._workers.submit(Lane.WORK, "looking for running backends", self._finder.find, self._found)

    def _found(self, found: tuple[discovery.FoundBackend, ...] | None, error: BaseException | None) -> None:
        if found is None:
            log.warning("cannot look for running backends: %s", error)
            return
        now = self._clock.monotonic()
        for watched in self:
            if watched.supervisor is None:
                self._forget_if_ended(watched, now)
        # The search takes a moment, in which a process may have ended.
        alive = [each for each in found if is_alive(each.identity)]
        self._leave_displaced(alive, now)
        awaited = {each.identity for each in alive if self._is_awaited(each)}
        alive = [each for each in alive if each.identity not in awaited]
        leaving = {each.identity.pid for each in self._leaving if each.identity is not None}
        for each, owner in match(alive, tuple(self), leaving):
            if owner is None:
                owner = self._newcomer(each, now) if self._discover else None
            if owner is None:
                continue
            if owner.process != each.identity or owner.description is None:
                self._attach(owner, each, now)
            elif owner.description.url != each.description.url:
                self._readdress(owner, each)
            elif owner.model_path is None and each.model_path is not None:
                self._care.learn_model(owner, each.model_path)
        self._drop_doubles(awaited)

    def _drop_doubles(self, awaited: Collection[ProcessIdentity]) -> None:
        """A process that a configured backend has, or will have once its manager says so, is nobody else's."""
        for watched in self:
            process = watched.process if watched.discovered else None
            if process is not None and (process in awaited or self._is_taken(watched)):
                self._drop(watched)

    def _leave_displaced(self, found: list[discovery.FoundBackend], now: float) -> None:
        """A configured backend with an address is who listens there, and no longer the one before it that hangs in its end."""
        gone = {each.identity: each.displaced_by for each in found if each.displaced_by is not None}
        for watched in self:
            own = watched.config is not None and watched.config.url is not None and watched.supervisor is None
            if own and watched.process is not None and watched.process in gone:
                by = gone[watched.process]
                log.info("%s: process %d no longer listens, process %d does", watched.name, watched.process.pid, by)
                self._forget_process(watched, now)

    def _readdress(self, watched: Watched, found: discovery.FoundBackend) -> None:
        """The same process, elsewhere to be asked or not at all."""
        watched.description = found.description
        url = self._url_of(watched, found)
        if url != watched.url:
            log.info("%s: %s", watched.name, f"is asked at {url}" if url else found.description.url_unknown)
            watched.url = url
            watched.http, watched.http_at, watched.http_asked_at = {}, None, None
            self._probing.aim(watched)

    @staticmethod
    def _url_of(watched: Watched, found: discovery.FoundBackend) -> str | None:
        configured = None if watched.config is None else watched.config.url
        return discovery.address_of(found.description, None if found.displaced_by is not None else configured)

    def _is_awaited(self, found: discovery.FoundBackend) -> bool:
        """Whether it runs in the unit of a configured backend whose process systemd has not named yet: else it would be shown twice."""
        managed = [each.supervisor for each in self if isinstance(each.supervisor, ServiceSupervisor)]
        return any(supervisor.awaits(found.identity, found.services) for supervisor in managed)

    def _is_taken(self, watched: Watched) -> bool:
        """Whether a configured backend has its process now."""
        return any(each.config is not None and each.process == watched.process for each in self)

    def _newcomer(self, found: discovery.FoundBackend, now: float) -> Watched | None:
        taken = [each.name for each in self if each.config is not None or each.process is not None]
        name = discovery.name_for(found, taken)
        known = self._watched.get(name)
        if known is not None:
            return known
        if len(self._watched) >= MOST_WATCHED:
            if not self._full_said:
                log.warning("more than %d backends run; the others are not watched", MOST_WATCHED)
                self._full_said = True
            return None
        self._watched[name] = Watched(name, None, now)
        return self._watched[name]

    def _attach(self, watched: Watched, found: discovery.FoundBackend, now: float) -> None:
        """The found process is that backend."""
        another = watched.process != found.identity
        if watched.supervisor is not None:
            watched.supervisor.found(found.identity, found.description)
            if watched.supervisor.by_search:
                watched.main = watched.supervisor.identity
        watched.follow_process(found.identity, now)
        if another and watched.supervisor is None:
            self._baselines.follow(watched, now)
        watched.kind = found.kind
        watched.description = found.description
        watched.command = redact_arguments(found.argv)
        watched.url = self._url_of(watched, found)
        where = f"at {watched.url}" if watched.url else f"at an unknown address: {found.description.url_unknown}"
        log.info("%s: is process %d, a %s %s", watched.name, found.identity.pid, found.kind, where)
        self._probing.aim(watched)
        configured = None if watched.config is None else watched.config.model
        self._care.learn_model(watched, found.model_path or configured)
        if watched.supervisor is not None and watched.supervisor.conversations is not None:
            watched.supervisor.conversations.sweep()

    # Leaving

    @property
    def supervisors(self) -> tuple[Supervisor, ...]:
        """Of all backends, also of those that are being ended."""
        own = [watched.supervisor for watched in self._watched.values() if watched.supervisor is not None]
        return (*own, *self._leaving)

    def stop(self) -> None:
        """End everything that is supervised; `stopped` tells when that is done."""
        for watched in self:
            self._care.end(watched)
        for supervisor in self.supervisors:
            supervisor.stop()

    def kill(self) -> None:
        """End without asking what still runs."""
        for supervisor in self.supervisors:
            supervisor.kill()

    @property
    def stopped(self) -> bool:
        """Whether nothing that is supervised runs."""
        return all(supervisor.stopped for supervisor in self.supervisors)

    def close(self) -> None:
        """Let go of everything without ending it."""
        for watched in self:
            self._care.end(watched)
            self._probing.end(watched)
        for supervisor in self.supervisors:
            supervisor.let_go()


def _stays_supervised(old: Backend, new: Backend) -> bool:
    """Whether its supervisor can go on with the changed entry: a child can, another manager is asked in the way it was made for."""
    if isinstance(new.supervise, SuperviseProcess):
        return isinstance(old.supervise, SuperviseProcess)
    return not isinstance(new.supervise, SuperviseNone) and (old.supervise, old.model) == (new.supervise, new.model)


def _is_open(watched: Watched) -> bool:
    """Whether looking again may tell something new of it: what it is, which file it has mapped, a child that holds its model."""
    if watched.description is None:
        return True
    if watched.dialect is not Dialect.LLAMA and watched.process is not None and watched.model_path is None:
        return True  # its command line may not name it
    known = backends.abilities(watched.kind)
    return known is not None and known.child_holds_model


def _recorded_process(name: str, directory: str) -> int | None:
    """Pid of the process in a record if it still runs and moetuned started it."""
    try:
        record = backend_record.read(name, directory)
        if record is None or record.managed or record.boot_id != boot_id():
            return None
        identity = backend_record.process_of(record)
    except (backend_record.RecordError, OSError, ValueError):
        return None
    return identity.pid if identity is not None and is_alive(identity) else None


def _connections(watched: Watched, supervisor: Supervisor) -> int | None:
    """How many connections of others to it are open; None: not known."""
    if watched.url is None or supervisor.identity is None:
        return None
    try:
        port = loopback_address(watched.url)[1]
    except ValueError:
        return None
    return open_connections(supervisor.identity.pid, port)
