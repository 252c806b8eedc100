"""The composition root: puts the rooms of the house together and runs the tick (sample, signals, verdict, actions)."""

from __future__ import annotations

import logging
import os
import selectors
import signal
from collections import deque
from collections.abc import Mapping

import msgspec

from moetuned import __version__, alerts
from moetuned.api.server import ApiServer
from moetuned.daemon import discovery
from moetuned.daemon.config_loading import load_checked
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.loop import Loop
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.settings import Settings, detector_settings, relief_settings, settings_of
from moetuned.daemon.snapshot_view import backend_view, machine_view
from moetuned.daemon.supervisor import Supervisor
from moetuned.daemon.tuning_keeper import TuningKeeper
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import detector, relief, signals
from moetuned.decide.memory_headroom import memory_view
from moetuned.decide.supervision import LaunchPlan, Stage
from moetuned.host.backend_http import Probe
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.clock import Clock
from moetuned.host.config_files import LoadedConfig
from moetuned.host.fs import RealFS
from moetuned.host.processes import ProcessIdentity, identify
from moetuned.host.sampler import Sampler
from moetuned.host.service_notify import ServiceNotifier
from moetuned.parse.assemble import assemble
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.config import Alert, Backend, SuperviseProcess
from moetuned.schema.event import Event, EventName
from moetuned.schema.sample import Sample
from moetuned.schema.snapshot import SelfView, Snapshot
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60.0
DISCOVER_SECONDS = 5.0
DRIFT_SECONDS = 30.0
FORGET_SECONDS = 600.0
"""A backend that nobody configured is forgotten this long after it ended."""
EVENTS_SHOWN = 20


class Paths(msgspec.Struct, frozen=True):
    """Where the daemon keeps things. `config` None: the default file, if it is there."""

    config: str | None
    journal: str
    records: str
    socket: str | None = None


class App:
    """The daemon. Everything happens in the thread that calls `run`."""

    def __init__(self, loaded: LoadedConfig, paths: Paths, clock: Clock, loop: Loop, notifier: ServiceNotifier) -> None:
        """Opens the sockets. Raises api.errors.ListenError."""
        self._paths = paths
        self._clock = clock
        self._loop = loop
        self._notifier = notifier
        self._started_wall = clock.wall()
        self._loaded = loaded
        self._settings: Settings = settings_of(loaded.config)
        self._sampler = Sampler(clock)
        self._workers = Workers()
        self._events = EventLog(self._started_wall)
        self._tuning = TuningKeeper(RealFS(), paths.journal)
        self._window: deque[Sample] = deque(maxlen=1024)
        self._watched: dict[str, Watched] = {}
        self._care = ModelCare(loop, clock, self._workers)
        self._snapshot: Snapshot | None = None
        self._notes: tuple[str, ...] = ()
        self._ticks = 0
        self._tick_seconds: float | None = None
        self._lateness: float | None = None
        self._due: float = clock.monotonic()
        self._next_discovery: float = self._due
        self._next_drift: float = self._due + DRIFT_SECONDS
        self._stopping = False
        self._leaving: list[Supervisor] = []
        api = loaded.config.api
        if paths.socket is not None:
            api = msgspec.structs.replace(api, socket=paths.socket)
        self._api = ApiServer(api, lambda: self._snapshot, self._events.since, self._request, clock.monotonic)

    def run(self) -> None:
        """Serve until told to stop by SIGTERM or SIGINT; settings are rolled back and supervised backends ended then."""
        self._loop.add(self._workers.fileno(), selectors.EVENT_READ, lambda _events: self._workers.collect())
        self._api.register(self._loop.selector)
        self._loop.on_signal(signal.SIGTERM, self._stop)
        self._loop.on_signal(signal.SIGINT, self._stop)
        self._loop.on_signal(signal.SIGHUP, self._reload_by_signal)
        try:
            self._tuning.apply(self._loaded.config.tuning)
            self._configure()
            self._tick()
            self._notifier.ready(self._status_line())
            log.info("ready: %s", self._status_line())
            self._loop.run()
        finally:
            self._tuning.rollback()
            for watched in self._watched.values():
                self._care.end(watched)
                if watched.supervisor is not None:
                    watched.supervisor.let_go()
            self._api.close()
            self._sampler.close()
            self._workers.close(timeout_seconds=2.0)

    def reload(self) -> str | None:
        """Read the config again; a bad one is reported and the old one kept. Returns the problem, None when all is well."""
        self._notifier.reloading()
        try:
            loaded = load_checked(self._paths.config)
        except ConfigError as error:
            log.error("the new config is not used:\n%s", error)
            self._notes = (f"the new config is not used: {error.problems[0]}",)
            self._notifier.ready(self._status_line())
            return str(error)
        if loaded.config.api != self._loaded.config.api:
            log.warning("changes of api: take effect when moetuned is started again")
        self._loaded = loaded
        self._settings = settings_of(loaded.config)
        self._notes = ()
        self._tuning.apply(loaded.config.tuning)
        self._configure()
        self._notifier.ready(self._status_line())
        log.info("reloaded: %s", self._status_line())
        return None

    def _reload_by_signal(self) -> None:
        self.reload()

    # Backends

    def _configure(self) -> None:
        """Make what is watched the same as the config: new backends begin, those that are gone from it end."""
        now = self._clock.monotonic()
        wanted = {backend.name: backend for backend in self._loaded.config.backends}
        for name, watched in list(self._watched.items()):
            if watched.config is not None and name not in wanted:
                log.info("%s: no longer in the config", name)
                self._drop(watched)
        for name, config in wanted.items():
            known = self._watched.get(name)
            if known is not None and known.config is not None and known.config != config:
                self._change(known, config)
            elif known is None or known.config is None:
                if known is not None:
                    self._drop(known)
                self._watched[name] = self._new(config, now)
            if (supervisor := self._watched[name].supervisor) is not None:
                supervisor.retry()
        self._next_discovery = now

    def _new(self, config: Backend, now: float) -> Watched:
        watched = Watched(config.name, config, now)
        if isinstance(config.supervise, SuperviseProcess):
            watched.supervisor = Supervisor(
                config,
                self._loop,
                self._clock,
                self._paths.records,
                lambda name, message, watched=watched: self._supervisor_says(watched, name, message),  # type: ignore[misc]
            )
            watched.supervisor.start()
        self._care.learn_model(watched, config.model)
        return watched

    def _change(self, watched: Watched, config: Backend) -> None:
        """A changed entry: who supervises decides whether that means another process."""
        assert watched.config is not None
        if type(watched.config.supervise) is not type(config.supervise):
            self._drop(watched)
            self._watched[config.name] = self._new(config, self._clock.monotonic())
            return
        watched.config = config
        watched.url = config.url or watched.url
        if watched.supervisor is not None:
            watched.supervisor.config = config
            self._notes = (*self._notes, f"{config.name}: the changed entry is used when it is started the next time")

    def _drop(self, watched: Watched) -> None:
        self._care.end(watched)
        if watched.probe is not None:
            watched.probe.close()
        self._watched.pop(watched.name, None)
        if watched.supervisor is not None and not watched.supervisor.stopped:
            watched.supervisor.stop()
            self._leaving = [*self._leaving, watched.supervisor]

    def _supervisor_says(self, watched: Watched, name: EventName, message: str) -> None:
        if name in (EventName.BACKEND_RESTARTED, EventName.BACKEND_DOWN):
            watched.relief = relief.restarted(watched.relief)
        self._emit(name, watched.name, message)

    def _discover(self, now: float) -> None:
        if now < self._next_discovery:
            return
        self._next_discovery = now + DISCOVER_SECONDS
        if self._settings.discover or any(each.process is None for each in self._watched.values()):
            self._workers.submit(Lane.WORK, "discover", discovery.find_backends, self._discovered)

    def _discovered(self, found: object, error: BaseException | None) -> None:
        if error is not None or not isinstance(found, tuple):
            log.warning("cannot look for running backends: %s", error)
            return
        now = self._clock.monotonic()
        sessions = {
            watched.supervisor.identity.pid: watched
            for watched in self._watched.values()
            if watched.supervisor is not None and watched.supervisor.identity is not None
        }
        held = {watched.process: watched for watched in self._watched.values() if watched.process is not None}
        for each in found:
            owner = sessions.get(each.session) or held.get(each.identity)
            if owner is None:
                owner = next(
                    (
                        watched
                        for watched in self._watched.values()
                        if watched.process is None
                        and watched.supervisor is None
                        and watched.config is not None
                        and discovery.belongs_to(watched.config, each)
                    ),
                    None,
                )
            if owner is None:
                if not self._settings.discover:
                    continue
                name = discovery.name_for(each, [one.name for one in self._watched.values() if one.process is not None])
                owner = self._watched.get(name)
                if owner is None or owner.config is not None:
                    owner = self._watched[name] = Watched(name, None, now)
            if owner.process != each.identity or owner.description is None:
                self._attach(owner, each)

    def _attach(self, watched: Watched, found: discovery.FoundBackend) -> None:
        """The found process is that backend."""
        log.info("%s: process %d (%s)", watched.name, found.identity.pid, found.kind)
        watched.kind = found.kind
        watched.description = found.description
        self._set_process(watched, found.identity)
        if watched.config is None or watched.config.url is None:
            watched.url = found.description.url
        self._set_probe(watched)
        configured = None if watched.config is None else watched.config.model
        self._care.learn_model(watched, configured or found.model_path)

    def _set_process(self, watched: Watched, identity: ProcessIdentity) -> None:
        if watched.process != identity:
            watched.process = identity
            watched.gone_since = None
            watched.residency_unknown = "not looked at yet"
            watched.next_residency = self._clock.monotonic()
        watched.cgroup = memory_cgroup(identity.pid)

    def _set_probe(self, watched: Watched) -> None:
        if watched.probe is not None:
            watched.probe.close()
            watched.probe = None
        if watched.url is None:
            return
        may_sleep = watched.description is None or watched.description.sleeps_after_seconds is not None
        try:
            watched.probe = Probe(watched.url, may_sleep=may_sleep)
        except ValueError as error:
            log.warning("%s: %s", watched.name, error)

    def _follow_processes(self, now: float) -> None:
        """Bring what is watched in line with what runs."""
        for watched in list(self._watched.values()):
            supervisor = watched.supervisor
            if supervisor is not None:
                supervisor.tick()
                if supervisor.identity is None:
                    if watched.process is not None:
                        watched.forget_process(now)
                elif watched.process is None:
                    self._set_process(watched, supervisor.identity)
                    watched.description = None
                    self._set_probe(watched)
                    self._next_discovery = min(self._next_discovery, now + 1.0)
            if watched.process is not None and watched.sample is not None and watched.sample.process_gone:
                same = watched.sample.process is None and identify(watched.process.pid) != watched.process
                if same:
                    watched.forget_process(now)
                    watched.description = None
            if watched.discovered and watched.gone_since is not None and now - watched.gone_since > FORGET_SECONDS:
                log.info("%s: forgotten", watched.name)
                self._drop(watched)
        for supervisor in self._leaving:
            supervisor.tick()
        self._leaving = [each for each in self._leaving if not each.stopped]

    # The tick

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._lateness = max(0.0, now - self._due)
        if self._stopping:
            self._finish_stopping(now)
        self._follow_processes(now)
        if not self._stopping:
            self._discover(now)
        self._look(now)
        self._watch_settings(now)
        self._api.service(now)
        self._tick_seconds = self._clock.monotonic() - now
        self._ticks += 1
        self._publish(now)
        self._notifier.watchdog(self._status_line())
        interval = self._settings.interval_seconds
        if self._notifier.watchdog_seconds is not None:
            interval = min(interval, self._notifier.watchdog_seconds / 3)
        # A fixed grid, but a late tick is not made up for by a burst.
        self._due = max(self._due + interval, self._clock.monotonic() + interval / 10)
        self._loop.call_at(self._due, self._tick)

    def _look(self, now: float) -> None:
        """Sample, signals, verdict and what follows for each backend."""
        backends = list(self._watched.values())
        identities = [watched.identity for watched in backends]
        raw = self._sampler.read(identities, {watched.name: watched.raw(now) for watched in backends})
        sample = assemble(raw, identities)
        while self._window and sample.at_seconds - self._window[0].at_seconds > WINDOW_SECONDS:
            self._window.popleft()
        self._window.append(sample)
        window = list(self._window)
        for watched, own in zip(backends, sample.backends, strict=True):
            watched.sample = own
            if own.residency is not None:
                watched.residency, watched.residency_at = own.residency, now
            self._decide(watched, window, now)
            self._poll(watched)

    def _decide(self, watched: Watched, window: list[Sample], now: float) -> None:
        own = watched.sample
        assert own is not None
        watched.signals = signals.derive(window, watched.name, watched.facts)
        step = detector.step(watched.detector, watched.signals, own, watched.facts, detector_settings(self._settings))
        watched.detector, watched.verdict = step.state, step.verdict
        watched.memory = msgspec.structs.replace(
            memory_view(window[-1].machine, own), seconds_to_limit=watched.signals.get("seconds_to_limit")
        )
        self._note_health(watched, now)
        if watched.verdict.paging == Paging.STEADY and watched.verdict.phase == Phase.DECODE and watched.residency:
            watched.cache_when_steady_bytes = watched.residency.resident_bytes
        for begun in step.begun:
            if watched.supervisor is not None and begun.name in (EventName.BACKEND_DOWN, EventName.BACKEND_RECOVERED):
                continue  # Its supervisor knows why and says so.
            self._emit(begun.name, watched.name, begun.message, begun.reasons)
        self._relieve(watched, now)
        self._care.tick(watched, self._settings, now)

    def _note_health(self, watched: Watched, now: float) -> None:
        http = None if watched.sample is None else watched.sample.http
        if http is None or http.health != "ok" or watched.process is None:
            return
        if watched.ready_at is None:
            watched.ready_at = now
            watched.next_residency = now
            if watched.supervisor is not None:
                watched.supervisor.healthy()
                if self._settings.warm_enabled:
                    self._care.want_warm(watched, "the backend has loaded")

    def _relieve(self, watched: Watched, now: float) -> None:
        memory, supervisor = watched.memory, watched.supervisor
        if self._stopping or memory.limit_bytes is None:
            return
        context = None if watched.config is None else watched.config.context
        command = [] if supervisor is None else getattr(supervisor.config.supervise, "command", [])
        facts = relief.ReliefFacts(
            supervised=supervisor is not None,
            context_changeable=supervisor is None or any("{context}" in argument for argument in command),
            prompt_cache_changeable=any("{prompt_cache_mib}" in argument for argument in command),
            context_length=watched.context_now(),
            minimum_context=2048 if context is None else context.minimum,
            prompt_cache_mib=watched.prompt_cache_mib(),
            kv_bytes_per_token=watched.kv_bytes_per_token,
            ready=watched.ready_at is not None and (supervisor is None or supervisor.state.stage == Stage.READY),
        )
        limits = relief_settings(self._settings, memory.limit_bytes, watched.cache_when_steady_bytes)
        decided = relief.step(watched.relief, watched.verdict, memory, facts, limits, now)
        watched.relief, watched.would_do = decided.state, decided.would_do
        if decided.exhausted is not None:
            message = f"{watched.name}: memory is near its limit and moetuned can free no more: {decided.exhausted}"
            self._emit(EventName.RELIEF_EXHAUSTED, watched.name, message, _memory_reasons(watched))
        if decided.restart is not None and supervisor is not None:
            restart = decided.restart
            log.warning("%s: restarting it: %s", watched.name, restart.reason)
            self._care.end(watched)
            cache = (
                supervisor.state.plan.prompt_cache_mib if restart.prompt_cache_mib is None else restart.prompt_cache_mib
            )
            supervisor.restart(LaunchPlan(restart.context_length, cache))

    def _poll(self, watched: Watched) -> None:
        probe = watched.probe
        if probe is None or watched.process is None:
            return
        idle = watched.verdict.phase == Phase.IDLE

        def done(answers: object, error: BaseException | None) -> None:
            if watched.probe is probe and isinstance(answers, dict):
                watched.http, watched.http_at = answers, self._clock.monotonic()
            elif error is not None:
                log.warning("%s: asking it failed: %s", watched.name, error)

        self._workers.submit(Lane.PROBE, f"probe {watched.name}", lambda: probe.poll(idle=idle), done)

    def _watch_settings(self, now: float) -> None:
        if now < self._next_drift or self._stopping:
            return
        self._next_drift = now + DRIFT_SECONDS
        for view in self._tuning.check():
            self._emit(EventName.TUNING_DRIFTED, None, f"{view.name}: {view.detail}")

    # Saying

    def _emit(self, name: EventName, backend: str | None, message: str, reasons: tuple[Reason, ...] = ()) -> None:
        event = self._events.add(
            Event(
                id="",
                name=name,
                wall_seconds=self._clock.wall(),
                at_seconds=self._clock.monotonic(),
                backend=backend,
                message=message,
                reasons=reasons,
            )
        )
        log.warning("%s: %s", name, message)
        for number, alert in enumerate(self._loaded.config.alerts):
            if not alert.on or name in alert.on:
                self._alert(event, alert, number)

    def _alert(self, event: Event, alert: Alert, number: int) -> None:
        def done(_results: object, error: BaseException | None) -> None:
            if error is not None:
                log.error("alert %d failed: %s", number, error)

        self._workers.submit(Lane.ALERT, f"alert {event.id} {number}", lambda: alerts.find("exec")(event, alert), done)

    def _publish(self, now: float) -> None:
        self._snapshot = Snapshot(
            status=1,
            wall_seconds=self._clock.wall(),
            at_seconds=now,
            mode="act" if self._settings.act else "observe",
            profile=self._loaded.config.tuning.profile.value,
            config=", ".join(self._loaded.files) or None,
            daemon=SelfView(
                pid=os.getpid(),
                version=__version__,
                started_wall_seconds=self._started_wall,
                ticks=self._ticks,
                tick_seconds=self._tick_seconds,
                tick_lateness_seconds=self._lateness,
                rss_bytes=own_rss_bytes(),
                source_errors=self._sampler.errors,
            ),
            machine=machine_view(list(self._window)[-2:]),
            backends=tuple(backend_view(watched, now) for watched in self._watched.values()),
            tuning=self._tuning.views,
            events=self._events.last(EVENTS_SHOWN),
            notes=(*self._notes, *self._tuning.notes, *(str(problem) for problem in self._loaded.warnings)),
        )

    def _status_line(self) -> str:
        if self._notes:
            return self._notes[0]
        if not self._watched:
            return "no backend runs that moetuned knows"
        views = () if self._snapshot is None else self._snapshot.backends
        return "; ".join(f"{view.name} {view.sentence}" for view in views) or "starting"

    def _request(self, action: str, payload: Mapping[str, object]) -> tuple[int, object]:
        """POST requests of the API."""
        if action == "reload":
            problem = self.reload()
            return (200, {"reloaded": True}) if problem is None else (409, {"error": problem})
        watched = self._watched.get(str(payload.get("backend")))
        if watched is None:
            return 404, {
                "error": f"there is no backend {payload.get('backend')!r}; there are: {', '.join(self._watched)}"
            }
        self._care.want_warm(watched, "somebody asked for it")
        return 202, {"warming": watched.name}

    # Stopping

    def _stop(self) -> None:
        supervisors = [watched.supervisor for watched in self._watched.values() if watched.supervisor is not None]
        if self._stopping:
            log.warning("told to stop again: killing what is left")
            for supervisor in (*supervisors, *self._leaving):
                supervisor.kill()
            return
        self._stopping = True
        self._notifier.stopping("rolling back settings and ending supervised backends")
        log.info("stopping")
        self._tuning.rollback()
        for watched in self._watched.values():
            self._care.end(watched)
        for supervisor in supervisors:
            supervisor.stop()
        self._loop.call_later(0.0, self._poll_stopped)

    def _poll_stopped(self) -> None:
        self._finish_stopping(self._clock.monotonic())
        if self._stopping:
            self._loop.call_later(0.1, self._poll_stopped)

    def _finish_stopping(self, _now: float) -> None:
        supervisors = [watched.supervisor for watched in self._watched.values() if watched.supervisor is not None]
        if all(supervisor.stopped for supervisor in (*supervisors, *self._leaving)):
            self._loop.stop()
        else:
            self._notifier.extend_timeout(30.0)


def _memory_reasons(watched: Watched) -> tuple[Reason, ...]:
    if watched.verdict.memory == MemoryState.UNKNOWN:
        return ()
    return tuple(reason for reason in watched.verdict.reasons if reason.axis == "memory")


def own_rss_bytes() -> int | None:
    """Resident memory of this process; None when it cannot be read."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
