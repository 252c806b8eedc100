"""The composition root: puts the rooms of the house together, runs the tick, reloads and stops."""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
from collections.abc import Mapping

import msgspec

from moetuned import __version__
from moetuned.api.server import ApiServer
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.config_loading import load_checked
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.heat_keeper import HeatKeeper
from moetuned.daemon.judging import Judge
from moetuned.daemon.loop import Loop
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.probing import Probing
from moetuned.daemon.roster import Roster
from moetuned.daemon.settings import Settings, settings_of
from moetuned.daemon.snapshot_view import backend_view, machine_view
from moetuned.daemon.swap_keeper import TRY_ALONE, SwapKeeper
from moetuned.daemon.tuning_keeper import TuningKeeper
from moetuned.daemon.workers import Workers
from moetuned.decide import supervision as sv
from moetuned.host.clock import Clock
from moetuned.host.config_files import DEFAULT_PATH, LoadedConfig
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.service_notify import ServiceNotifier
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.event import EventName
from moetuned.schema.snapshot import SelfView, Snapshot, TuneAnswer
from moetuned.schema.units import format_duration
from moetuned.state.undo_journal import is_held

log = logging.getLogger(__name__)

DRIFT_SECONDS = 30.0
DRIFT_AGAIN_SECONDS = 2.0
"""A setting that has drifted is looked at again after this long, before anything is believed."""
EVENTS_SHOWN = 20
RSS_TICKS = 10
"""The daemon's own memory is looked at once in so many ticks."""
SLOW_WORK_SECONDS = 60.0
"""Work in a lane that takes longer than this is told in the status: it is most often a file system that hangs."""
ALERT_GRACE_SECONDS = 5.0
"""At the end, alerts that are on their way get this long."""
SWAP_GRACE_SECONDS = 75.0
"""At the end, swap that is being taken away gets this long; what stays on is recorded, and the next start takes it over."""
GIVE_UP_SECONDS = 15.0
"""A backend that has not ended this long after its deadline is left behind: not even SIGKILL ends what hangs in the kernel."""


class Paths(msgspec.Struct, frozen=True):
    """Where the daemon keeps things. `config` None: the default file, if it is there."""

    config: str | None
    journal: str
    records: str
    socket: str | None = None


class App:
    """The daemon. Everything happens in the thread that calls `run`."""

    def __init__(
        self,
        loaded: LoadedConfig,
        paths: Paths,
        clock: Clock,
        loop: Loop,
        notifier: ServiceNotifier,
        fs: HostFS | None = None,
        timing: sv.Timing = sv.Timing(),  # noqa: B008  frozen
    ) -> None:
        """Opens the sockets. `fs`: where settings are read and written. Raises api.errors.ListenError."""
        self._paths = paths
        self._clock = clock
        self._loop = loop
        self._notifier = notifier
        self._fs = fs or RealFS()
        self._timing = timing
        self._started_wall = clock.wall()
        self._loaded = loaded
        self._settings: Settings = settings_of(loaded.config)
        self._events = EventLog(self._started_wall)
        self._snapshot: Snapshot | None = None
        self._notes: tuple[str, ...] = ()
        self._ticks = 0
        self._rss_bytes: int | None = None
        self._tick_seconds: float | None = None
        self._lateness: float | None = None
        self._due: float = clock.monotonic()
        self._next_drift: float = self._due + DRIFT_SECONDS
        self._stopping_since: float | None = None
        self._tuning = TuningKeeper(self._fs, paths.journal)
        api = loaded.config.api
        if paths.socket is not None:
            api = msgspec.structs.replace(api, socket=paths.socket)
        self._api = ApiServer(api, lambda: self._snapshot, self._events.since, self._request, clock.monotonic)
        self._workers = Workers(clock)
        self._swap = SwapKeeper(
            self._fs, os.path.dirname(paths.journal), self._workers, holds=lambda: self._tuning.holds
        )
        self._locked_out = False
        self._cgroups: dict[str, str] = {}
        self._swap_goes_since: float | None = None
        self._announcer = Announcer(self._events, self._workers, clock)
        self._care = ModelCare(
            loop,
            clock,
            self._workers,
            HeatKeeper(clock, self._workers, os.path.join(os.path.dirname(paths.journal), "heat")),
        )
        self._probing = Probing(self._workers, clock)
        self._judge = Judge(clock, self._care, self._announcer)
        self._roster = Roster(
            loop, clock, self._workers, self._care, self._probing, paths.records, self._announcer.say, timing
        )

    def run(self) -> None:
        """Serve until told to stop by SIGTERM or SIGINT; settings are rolled back and supervised backends ended then."""
        try:
            self.start()
            # What is there now stays: the collector need not walk through it at every full collection.
            gc.collect()
            gc.freeze()
            self._loop.run()
        finally:
            self.close()

    def start(self) -> None:
        """Apply the config and make the first tick; the rest happens in the loop."""
        self._loop.add(self._workers.fileno(), selectors.EVENT_READ, lambda _events: self._workers.collect())
        self._api.register(self._loop.selector)
        self._loop.on_signal(signal.SIGTERM, self.stop)
        self._loop.on_signal(signal.SIGINT, self.stop)
        self._loop.on_signal(signal.SIGHUP, self._reload_by_signal)
        self._apply()
        self._roster.note_orphans()
        self._tick()
        self._notifier.ready(self._status_line())
        log.info("ready, %s", self._mode_line())

    def close(self) -> None:
        """Give everything back. What is still supervised runs on, and the next daemon takes it over."""
        self._tuning.rollback()
        self._swap.take_away_now()
        if not self._swap.idle:
            log.warning("swap is still being made or taken away; what stays on is recorded: %s", TRY_ALONE)
        self._tuning.close()
        self._roster.close()
        self._api.close()
        self._judge.close()
        self._loop.remove(self._workers.fileno())
        self._workers.close(timeout_seconds=2.0)
        self._loop.close()

    @property
    def snapshot(self) -> Snapshot | None:
        """What everybody is shown; None before the first tick."""
        return self._snapshot

    # Configuration

    def reload(self) -> str | None:
        """Read the config again; a bad one is reported and the old one kept. Returns the problem, None when all is well."""
        if self._stopping_since is not None:
            return "moetuned is stopping"
        self._notifier.reloading()
        try:
            loaded = load_checked(self._paths.config)
        except ConfigError as error:
            log.error("the new config is not used, the old one stays in force:\n%s", error)
            self._notes = (f"the new config is not used: {error.problems[0]}",)
            self._notifier.ready(self._status_line())
            return str(error)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        self._notes = ()
        if loaded.config.api != self._loaded.config.api:
            self._notes = ("what changed under api: takes effect when moetuned is started again",)
            log.warning("%s", self._notes[0])
        self._loaded = loaded
        self._settings = settings_of(loaded.config)
        self._apply()
        self._notifier.ready(self._status_line())
        log.info("reloaded, %s", self._mode_line())
        return None

    def _reload_by_signal(self) -> None:
        self.reload()

    def _apply(self) -> None:
        config = self._loaded.config
        self._announcer.sinks = config.alerts
        self._apply_settings()
        self._roster.configure(config)

    def _apply_settings(self, *, by_hand: bool = False) -> None:
        config = self._loaded.config
        self._apply_kernel_settings(by_hand=by_hand)
        self._swap.apply(config, changed=self._apply_kernel_settings, by_hand=by_hand)
        self._locked_out = self._is_locked_out()

    def _is_locked_out(self) -> bool:
        """Whether another process holds the undo journal, so that this one changes neither settings nor swap."""
        return not self._tuning.holds and is_held(self._paths.journal)

    def _apply_kernel_settings(self, *, by_hand: bool = False) -> None:
        """Some depend on where swap lives and on the cgroups of backends, so this is done again when those change."""
        config = self._loaded.config
        if self._stopping_since is None:
            hold = self._swap.is_concerned(config)
            self._tuning.apply(config, by_hand=by_hand, cgroups=self._cgroups, hold=hold)

    def _follow_cgroups(self) -> None:
        """Settings of a backend's cgroup can only be made while it is there."""
        if self._stopping_since is not None or self._tuning.resting:
            return
        asking = {
            backend.name
            for backend in self._loaded.config.backends
            if backend.memory_low is not None or backend.io_weight is not None
        }
        if not asking and not self._cgroups:
            return
        found = {
            watched.name: watched.cgroup.directory
            for watched in self._roster
            if watched.name in asking and watched.process is not None and watched.cgroup.directory is not None
        }
        if found != self._cgroups:
            self._cgroups = found
            self._apply_kernel_settings()

    def _mode_line(self) -> str:
        files = ", ".join(self._loaded.files) or "no config file"
        profile = self._loaded.config.tuning.profile.value
        settings = "settings are left alone" if profile == "observe" else f"settings of profile {profile}"
        relief = "relief may restart backends" if self._settings.act else "relief only says what it would do"
        return f"with {files}: {settings}, {relief}"

    # The tick

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._lateness = max(0.0, now - self._due)
        stopping = self._stopping_since is not None
        self._roster.follow(now)
        if not stopping:
            self._roster.discover(now)
        self._follow_cgroups()
        self._judge.look(tuple(self._roster), self._settings, now, may_restart=not stopping)
        for watched in self._roster:
            self._probing.ask(watched)
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

    def _watch_settings(self, now: float) -> None:
        if now < self._next_drift or self._stopping_since is not None:
            return
        if self._locked_out and not self._is_locked_out():
            log.info("the undo journal is free now")
            self._apply_settings()
        swap = self._swap.check()
        for view in (*self._tuning.check(), *swap):
            self._announcer.say(EventName.TUNING_DRIFTED, None, f"{view.name}: {view.detail}")
        if swap and not self._tuning.resting:
            self._apply_kernel_settings()
        self._next_drift = now + (DRIFT_AGAIN_SECONDS if self._tuning.must_look_again else DRIFT_SECONDS)

    def _publish(self, now: float) -> None:
        if self._ticks % RSS_TICKS == 1:
            self._rss_bytes = own_rss_bytes()
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
                rss_bytes=self._rss_bytes,
                source_errors=self._judge.source_errors,
            ),
            machine=machine_view(self._judge.last_samples),
            backends=tuple(backend_view(watched, now) for watched in self._roster),
            tuning=(*self._tuning.views, *self._swap.views),
            events=self._events.last(EVENTS_SHOWN),
            notes=self._all_notes(),
        )

    def _all_notes(self) -> tuple[str, ...]:
        slow = (
            f"{what} has been going on for {format_duration(seconds)}; perhaps a file system hangs"
            for what, seconds in self._workers.running_longer_than(SLOW_WORK_SECONDS)
        )
        warnings = (str(problem) for problem in self._loaded.warnings)
        return (*self._notes, *self._roster.notes, *self._tuning.notes, *self._swap.notes, *slow, *warnings)

    def _status_line(self) -> str:
        """One line for `systemctl status`."""
        views = () if self._snapshot is None else self._snapshot.backends
        if self._stopping_since is not None:
            parts = ["stopping"]
        elif not views:
            parts = ["no backend is running that moetuned knows"]
        else:
            parts = [f"{view.name} {view.sentence}" for view in views]
        return "; ".join((*self._notes, *parts))

    def _request(self, action: str, payload: Mapping[str, object]) -> tuple[int, object]:
        """POST requests of the API."""
        if self._stopping_since is not None:
            return 409, {"error": "moetuned is stopping"}
        if action == "reload":
            problem = self.reload()
            return (200, {"reloaded": True}) if problem is None else (409, {"error": problem})
        if action == "tune":
            return self._tune(payload)
        watched = self._roster.get(str(payload.get("backend")))
        if watched is None:
            known = ", ".join(self._roster.names) or "none"
            return 404, {"error": f"there is no backend {payload.get('backend')!r}; there are: {known}"}
        self._care.want_warm(watched, "somebody asked for it")
        return 202, {"warming": watched.name}

    def _tune(self, asked: Mapping[str, object]) -> tuple[int, object]:
        """Apply settings or give them back because a person wants it, at once."""
        tuning = self._loaded.config.tuning
        problem = other_than_ours(asked, self._paths, tuning.profile.value)
        if problem is None and self._is_locked_out():
            problem = (
                f"another moetuned process holds {os.path.dirname(self._paths.journal)}, so this daemon (pid {os.getpid()}) has "
                "changed nothing and changes nothing; ask or stop that one"
            )
        if problem is not None:
            return 409, {"error": problem}
        if asked.get("do") == "rollback":
            log.info("somebody asked to give all settings back")
            self._tuning.rest()
            self._swap.take_away()
        else:
            log.info("somebody asked to apply the settings")
            self._apply_settings(by_hand=True)
        self._publish(self._clock.monotonic())  # who follows what is still being done must not see what was before
        return 200, TuneAnswer((*self._tuning.views, *self._swap.views), (*self._tuning.notes, *self._swap.notes))

    # Stopping

    def stop(self) -> None:
        """Roll settings back, end supervised backends, then leave the loop. Told again: kill what is left."""
        if self._stopping_since is not None:
            log.warning("told to stop again: killing what is left")
            self._roster.kill()
            if self._roster.stopped:
                self._loop.stop()
            return
        self._stopping_since = self._clock.monotonic()
        self._notifier.stopping("rolling back settings and ending supervised backends")
        log.info("stopping")
        self._tuning.rollback()
        self._roster.stop()
        self._finish_stopping()

    def _finish_stopping(self) -> None:
        assert self._stopping_since is not None
        took = self._clock.monotonic() - self._stopping_since
        if self._roster.stopped:
            now = self._clock.monotonic()
            if self._swap_goes_since is None:  # only now: what a backend had swapped out need not be read back
                self._swap_goes_since = now
                self._swap.take_away(ending=True)
            told = self._announcer.pending == 0 or took >= ALERT_GRACE_SECONDS
            if told and (self._swap.idle or now - self._swap_goes_since >= SWAP_GRACE_SECONDS):
                log.info("stopped")
                self._loop.stop()
                return
        elif took >= self._timing.terminate_seconds + GIVE_UP_SECONDS:
            log.error("a backend does not end even when it is killed; it is left behind")
            self._loop.stop()
            return
        self._notifier.extend_timeout(10.0)
        self._loop.call_later(0.1, self._finish_stopping)


def other_than_ours(asked: Mapping[str, object], paths: Paths, profile: str) -> str | None:
    """What of a request to tune is not what this daemon uses, and what to do, in one sentence; None when it is all the same."""
    ours = paths.config or DEFAULT_PATH
    config, wanted, journal = asked.get("config"), asked.get("profile"), asked.get("journal")
    if isinstance(journal, str) and os.path.realpath(journal) != os.path.realpath(paths.journal):
        return f"the daemon's undo journal is {paths.journal}, it knows nothing of {journal}"
    change = f"edit {ours} and reload the daemon (systemctl reload moetuned), or stop it"
    if isinstance(config, str) and os.path.realpath(config) != os.path.realpath(ours):
        return f"the daemon uses {ours}, not {config}; {change}"
    if isinstance(wanted, str) and wanted != profile:
        return f"the daemon uses the profile {profile}, not {wanted}; {change}"
    return None


def own_rss_bytes() -> int | None:
    """Resident memory of this process; None when it cannot be read."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
