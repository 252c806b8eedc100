"""The composition root: puts the rooms of the house together, runs the tick, reloads and stops."""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
from collections.abc import Mapping

import msgspec

from moetuned.alerts.journal import Journal
from moetuned.api.server import ApiServer
from moetuned.daemon import pacing
from moetuned.daemon.alerting import Alerting
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.asked_tuning import held_by_another, other_than_ours
from moetuned.daemon.config_loading import load_checked, mode_line
from moetuned.daemon.devices import Devices
from moetuned.daemon.event_keeper import EventKeeper
from moetuned.daemon.examining import Examining
from moetuned.daemon.heat_keeper import HeatKeeper
from moetuned.daemon.judging import Judge
from moetuned.daemon.kept_memory import KeptMemory
from moetuned.daemon.launching import Launching
from moetuned.daemon.loop import Loop
from moetuned.daemon.manual_actions import ManualActions
from moetuned.daemon.metric_file import MetricFile
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.neighbours import Neighbours
from moetuned.daemon.own_cost import OwnCost
from moetuned.daemon.paths import Paths
from moetuned.daemon.pressure_watch import PressureWatch
from moetuned.daemon.probing import Probing
from moetuned.daemon.roster import Roster
from moetuned.daemon.self_test import SelfTest, refused_swap
from moetuned.daemon.settings import Settings, settings_of
from moetuned.daemon.snapshot_view import backend_view, backends_sentence, machine_view
from moetuned.daemon.swap_keeper import TRY_ALONE, SwapKeeper
from moetuned.daemon.tick_timer import TickTimer
from moetuned.daemon.tuning_keeper import TuningKeeper
from moetuned.daemon.workers import Workers
from moetuned.decide import probe_budget, tick_interval
from moetuned.decide import supervision as sv
from moetuned.decide.signals import signal_functions
from moetuned.decide.tick_interval import TickInterval
from moetuned.host.clock import Clock
from moetuned.host.config_files import LoadedConfig
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.service_notify import ServiceNotifier
from moetuned.host.spawn import boot_id
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.event import EventName
from moetuned.schema.explanation import Explanations
from moetuned.schema.relief import ReliefPlans
from moetuned.schema.snapshot import Snapshot, TuneAnswer
from moetuned.schema.supervision import BackendDo
from moetuned.state.history import History
from moetuned.state.undo_journal import is_held

log = logging.getLogger(__name__)

DRIFT_SECONDS = 30.0
DRIFT_AGAIN_SECONDS = 2.0
"""A setting that has drifted is looked at again after this long, before anything is believed."""
EVENTS_SHOWN = 20
FRESH_INTERVALS = 1.2
"""Who asks gets nothing older than so many of watch.interval."""
ALERT_GRACE_SECONDS = 5.0
"""At the end, alerts that are on their way get this long."""
SWAP_GRACE_SECONDS = 75.0
"""At the end, swap that is being taken away gets this long; what stays on is recorded, and the next start takes it over."""
GIVE_UP_SECONDS = 15.0
"""A backend that has not ended this long after its deadline is left behind: not even SIGKILL ends what hangs in the kernel."""

_LEFT_BEHIND = "a backend does not end even when it is killed; it is left behind"


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
        state = paths.state_directory
        self._workers = Workers(clock)
        self._self_test = SelfTest(self._workers, clock, self._rehearsed)
        self._events = EventKeeper(self._workers, state).open_log(self._started_wall)
        self._history = History()
        self._alerting = Alerting(self._workers, clock, os.path.join(state, "alerts"), boot_id())
        self._snapshot: Snapshot | None = None
        self._looked: tuple[float, float] | None = None
        """When the last look was, monotonic and Unix seconds."""
        self._notes: tuple[str, ...] = ()
        self._cost = OwnCost()
        self._lateness: float | None = None
        self._timer = TickTimer(loop, clock, self._tick)
        self._pressure = PressureWatch(loop, clock, self._timer.sooner)
        self._pace: TickInterval = tick_interval.first(self._settings.interval_seconds)
        self._next_drift: float = clock.monotonic() + DRIFT_SECONDS
        self._stopping_since: float | None = None
        self._tuning = TuningKeeper(self._fs, paths.journal, clock)
        api = loaded.config.api
        if paths.socket is not None:
            api = msgspec.structs.replace(api, socket=paths.socket)
        self._api = ApiServer(
            api,
            self._fresh_snapshot,
            self._events.answer,
            self._request,
            clock.monotonic,
            self._explain,
            self._relief,
            self._alerting.view,
            self._history.told,
            lambda: self._self_test.answer,
        )
        self._metric_file = MetricFile(self._workers, lambda: self.snapshot)
        self._swap = SwapKeeper(self._fs, state, self._workers, holds=lambda: self._tuning.holds)
        self._locked_out = False
        self._swap_goes_since: float | None = None
        self._announcer = Announcer(self._events, self._alerting, clock, Journal())
        self._care = ModelCare(
            loop,
            clock,
            self._workers,
            HeatKeeper(clock, self._workers, os.path.join(state, "heat")),
        )
        self._manual_actions = ManualActions(clock)
        self._probing = Probing(self._workers, clock, self._timer.sooner)
        self._devices = Devices(loop, clock, self._workers, self._announcer, self._fs, state or ".")
        self._neighbours = Neighbours(clock, self._workers, self._announcer)
        kept = KeptMemory(self._fs, self._tuning.give_up_kept)
        self._judge = Judge(clock, self._care, self._announcer, neighbours=self._neighbours, kept=kept)
        self._roster = Roster(
            loop,
            clock,
            self._workers,
            self._care,
            self._probing,
            paths.records,
            self._announcer.say,
            timing,
            Launching(self._workers, lambda: self._settings).prepare,
            Examining(self._workers).examine,
            state,
            leave_open=self._announcer.leave_open,
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
        # Now, while files can still be opened: a directory that cannot be read looks empty to what finds plug-ins.
        signal_functions()
        self._loop.add(self._workers.fileno(), selectors.EVENT_READ, self._collect)
        self._api.register(self._loop.selector)
        self._loop.on_signal(signal.SIGTERM, self.stop)
        self._loop.on_signal(signal.SIGINT, self.stop)
        self._loop.on_signal(signal.SIGHUP, self._reload_by_signal)
        self._apply()
        self._roster.note_orphans()
        self._tick()
        self._notifier.ready(self._status_line())
        log.info("ready, %s", mode_line(self._loaded, act=self._settings.act))

    def close(self) -> None:
        """Give everything back. What is still supervised runs on, and the next daemon takes it over."""
        self._tuning.rollback()
        self._swap.take_away_now()
        if not self._swap.idle:
            log.warning("swap is still being made or taken away; what stays on is recorded: %s", TRY_ALONE)
        self._tuning.close()
        self._roster.close()
        self._api.close()
        self._pressure.close()
        self._devices.close()
        self._judge.close()
        self._loop.remove(self._workers.fileno())
        self._workers.close(timeout_seconds=2.0)
        self._metric_file.close()
        self._loop.close()

    @property
    def snapshot(self) -> Snapshot | None:
        """What everybody is shown: made when somebody asks, once a look. None before the first tick."""
        if self._snapshot is None and self._looked is not None:
            self._snapshot = self._make_snapshot(*self._looked)
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
        if loaded.config != self._loaded.config:
            self._roster.allow_returns()
        gone = {one.name for one in self._loaded.config.backends} - {one.name for one in loaded.config.backends}
        self._loaded = loaded
        self._settings = self._self_test.with_off(settings_of(loaded.config))
        self._self_test.forget()
        self._apply()
        self._announcer.retire(gone)
        self._notifier.ready(self._status_line())
        log.info("reloaded, %s", mode_line(self._loaded, act=self._settings.act))
        return None

    def _reload_by_signal(self) -> None:
        self.reload()

    def _apply(self) -> None:
        config = self._loaded.config
        self._alerting.configure(config.alerts)
        self._metric_file.configure(config.metrics)
        self._apply_settings()
        self._roster.configure(config)

    def _apply_settings(self, *, by_hand: bool = False) -> None:
        config = self._loaded.config
        self._apply_kernel_settings(by_hand=by_hand)
        refused = refused_swap(self._self_test)
        self._swap.apply(config, changed=self._apply_kernel_settings, by_hand=by_hand, refused=refused)
        self._locked_out = self._is_locked_out()

    def _is_locked_out(self) -> bool:
        """Whether another process holds the undo journal, so that this one changes neither settings nor swap."""
        return not self._tuning.holds and is_held(self._paths.journal)

    def _apply_kernel_settings(self, *, by_hand: bool = False) -> None:
        """Some depend on where swap lives and on the cgroups of backends, so this is done again when those change."""
        config = self._loaded.config
        if self._stopping_since is None:
            hold = self._swap.is_concerned(config)
            self._tuning.apply(config, by_hand=by_hand, hold=hold)
            self._self_test.follow(config, self._paths, self._tuning.steps)

    def _rehearsed(self) -> None:
        """What cannot be done from here is known, or is another than before."""
        self._settings = self._self_test.with_off(self._settings)
        self._snapshot = None
        news = self._tuning.refuse(self._self_test.refused_files) or self._swap.is_news(refused_swap(self._self_test))
        if news and self._stopping_since is None and not self._tuning.resting:
            self._apply_settings()

    # The tick

    def _tick(self) -> None:
        self._look()
        self._api.service(self._clock.monotonic())

    def _look(self) -> None:
        self._cost.begin()
        now = self._clock.monotonic()
        self._lateness, since = self._timer.begin(now)
        stopping = self._stopping_since is not None
        self._roster.follow(now)
        if not stopping:
            self._roster.discover(now)
        running = {watched.name: watched.cgroup.directory for watched in self._roster if watched.process is not None}
        if not stopping and self._tuning.follow_cgroups(self._loaded.config, running):
            self._apply_kernel_settings()
        if not stopping:
            self._self_test.tick(running, self._loaded.config, self._paths, self._tuning.steps)
        self._judge.look(tuple(self._roster), self._settings, now, self._pace.seconds, may_restart=not stopping)
        self._history.record(now, {watched.name: watched.recent for watched in self._roster})
        self._devices.tick(tuple(self._roster), now)
        for watched in self._roster:
            self._probing.ask(watched)
        self._watch_settings(now)
        self._alerting.tick(self._roster.names)
        self._pressure.follow(self._roster)
        self._set_pace(since)
        self._cost.end(self._clock.monotonic() - now)
        self._publish(now)
        self._metric_file.tick(now)
        if self._notifier.heard:
            self._notifier.watchdog(self._status_line())
        self._timer.next(self._pace.seconds)

    def _set_pace(self, since_seconds: float) -> None:
        """How long until the next look."""
        waiting = "an event waits for what is asked about it" if self._neighbours.waiting else None
        waiting = waiting if self._stopping_since is None else "moetuned is stopping"
        seen = pacing.seen(tuple(self._roster), triggered=self._pressure.active, waiting=waiting)
        self._pace = pacing.step(self._pace, seen, since_seconds, self._settings, self._notifier.watchdog_seconds)

    def _fresh_snapshot(self) -> Snapshot | None:
        """What somebody who asks is shown: while looks are seldom, one is made for them."""
        interval = self._settings.interval_seconds
        if self._looked is None or self._stopping_since is not None or self._pace.seconds <= interval:
            return self.snapshot
        if self._clock.monotonic() - self._looked[0] > FRESH_INTERVALS * interval:
            self._look()
        return self.snapshot

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
        self._looked, self._snapshot = (now, self._clock.wall()), None

    def _make_snapshot(self, now: float, wall: float) -> Snapshot:
        return Snapshot(
            status=1,
            wall_seconds=wall,
            at_seconds=now,
            mode="act" if self._settings.act else "observe",
            profile=self._loaded.config.tuning.profile.value,
            config=", ".join(self._loaded.files) or None,
            daemon=msgspec.structs.replace(
                self._cost.view(self._started_wall),
                tick_lateness_seconds=self._lateness,
                source_errors=self._judge.source_errors,
                tick_interval_seconds=self._pace.seconds,
                tick_interval_why=self._pace.why,
                pressure=self._pressure.text,
                pressure_wakes=self._pressure.told,
                probe_cpu_seconds=self._workers.budget.spent,
                probe_budget_left_seconds=probe_budget.left_seconds(self._workers.budget, now),
                event_counts=dict(self._events.counts),
                api_connections=self._api.connections,
            ),
            machine=machine_view(self._judge.last_samples),
            backends=tuple(backend_view(watched, now) for watched in self._roster),
            tuning=(*self._tuning.views, *self._swap.views),
            events=self._events.last(EVENTS_SHOWN),
            notes=self._all_notes(),
            cannot=self._self_test.answer.cannot,
        )

    def _all_notes(self) -> tuple[str, ...]:
        warnings = (str(problem) for problem in self._loaded.warnings)
        return (
            *self._notes,
            *self._roster.notes,
            *self._tuning.notes,
            *self._swap.notes,
            *self._metric_file.notes,
            *filter(None, (self._devices.note, self._api.note)),
            *self._workers.notes,
            *warnings,
        )

    def _status_line(self) -> str:
        """One line for `systemctl status`."""
        now = self._clock.monotonic() if self._looked is None else self._looked[0]
        said = "stopping" if self._stopping_since is not None else backends_sentence(self._roster, now)
        return "; ".join((*self._notes, said))

    def _explain(self) -> Explanations:
        found = (self._judge.explain(watched, self._settings) for watched in self._roster)
        return Explanations(tuple(one for one in found if one is not None))

    def _relief(self) -> ReliefPlans:
        return ReliefPlans(tuple(self._judge.relief_plan(watched, self._settings) for watched in self._roster))

    def _request(self, action: str, payload: Mapping[str, object]) -> tuple[int, object]:
        """POST requests of the API."""
        if self._stopping_since is not None:
            return 409, {"error": "moetuned is stopping"}
        if action == "reload":
            problem = self.reload()
            return (200, {"reloaded": True}) if problem is None else (409, {"error": problem})
        if action == "tune":
            return self._tune(payload)
        if action == "alerts/test":
            return self._announcer.answer_test(msgspec.convert(payload["sink"], str | None))
        watched = self._roster.get(str(payload.get("backend")))
        if watched is None:
            known = ", ".join(self._roster.names) or "none"
            return 404, {"error": f"there is no backend {payload.get('backend')!r}; there are: {known}"}
        if action == "backend":
            answer = self._manual_actions.ask(
                watched,
                self._settings,
                BackendDo(str(payload["do"])),
                msgspec.convert(payload["context"], int | None),
                now=payload["now"] is True,
                dry_run=payload["dry_run"] is True,
            )
            self._publish(self._clock.monotonic())
            return answer
        self._care.want_warm(watched, "somebody asked for it")
        return 202, {"warming": watched.name}

    def _tune(self, asked: Mapping[str, object]) -> tuple[int, object]:
        """Apply settings or give them back because a person wants it, at once."""
        tuning = self._loaded.config.tuning
        problem = other_than_ours(asked, self._paths.config, self._paths.journal, tuning.profile.value)
        if problem is None and self._is_locked_out():
            problem = held_by_another(self._paths.journal)
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
        self._neighbours.flush()
        self._notifier.stopping("rolling back settings and ending supervised backends")
        log.info("stopping")
        self._tuning.rollback()
        self._roster.stop()
        self._finish_stopping()

    def _collect(self, _events: int) -> None:
        self._workers.collect()
        if self._stopping_since is not None:
            self._leave_when_done()

    def _finish_stopping(self) -> None:
        if not self._leave_when_done():
            self._notifier.extend_timeout(10.0)
            self._loop.call_later(0.1, self._finish_stopping)

    def _leave_when_done(self) -> bool:
        assert self._stopping_since is not None
        now = self._clock.monotonic()
        took = now - self._stopping_since
        if self._roster.stopped:
            if self._swap_goes_since is None:  # only now: what a backend had swapped out need not be read back
                self._swap_goes_since = now
                self._swap.take_away(ending=True)
            told = not self._alerting.pending or took >= ALERT_GRACE_SECONDS
            done = told and (self._swap.idle or now - self._swap_goes_since >= SWAP_GRACE_SECONDS)
        else:
            done = took >= self._timing.terminate_seconds + GIVE_UP_SECONDS
        if done:
            log.info("stopped") if self._roster.stopped else log.error("%s", _LEFT_BEHIND)
            self._loop.stop()
        return done
