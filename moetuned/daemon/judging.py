"""One look at all backends: sample, signals, verdict, and the relief that follows from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from moetuned.daemon import hanging, relieving, returning, warm_baseline
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.kept_memory import KeptMemory
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.neighbours import Neighbours
from moetuned.daemon.settings import Settings, detector_settings
from moetuned.daemon.watched import Watched
from moetuned.decide import detector, left_open, signals
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.memory_headroom import memory_under_each, memory_view
from moetuned.decide.supervision import Stage, answers
from moetuned.decide.tick_interval import HTTP_FRESH_SECONDS
from moetuned.decide.window import WINDOW_SECONDS, Window, next_window
from moetuned.host.clock import Clock
from moetuned.host.sampler import Sampler
from moetuned.parse.assemble import assemble
from moetuned.schema.event import EventName
from moetuned.schema.explanation import Explanation
from moetuned.schema.relief import ReliefPlan
from moetuned.schema.sample import Sample
from moetuned.schema.verdict import Paging, Phase

log = logging.getLogger(__name__)


class Judge:
    """Holds the last minute of samples and an open descriptor for each file of the tick. Belongs to the loop's thread."""

    def __init__(
        self,
        clock: Clock,
        care: ModelCare,
        announcer: Announcer,
        root: str = "/",
        neighbours: Neighbours | None = None,
        kept: KeptMemory | None = None,
    ) -> None:
        """`root`: where the machine's files are, another directory for fixtures. `neighbours` None: nobody else is named in events.
        `kept` None: nothing is looked for that memory.min keeps.
        """
        self._sampler = Sampler(clock, root)
        self._care = care
        self._announcer = announcer
        self._neighbours = neighbours
        self._kept = kept
        self._windows: dict[str, Window] = {}
        self._last: tuple[Sample, ...] = ()
        self._well_since: dict[tuple[str | None, EventName], float] = {}
        """Of what an earlier daemon left open: since when nothing of it is seen (monotonic seconds)."""

    @property
    def source_errors(self) -> dict[str, int]:
        """Failed reads by path."""
        return self._sampler.errors

    def explain(self, watched: Watched, settings: Settings) -> Explanation | None:
        """Why its verdict is what it is, worked out now from what the last tick left; None before the first one."""
        from moetuned.decide.explain import explain  # not needed by a tick
        from moetuned.decide.signal_sources import Sight

        if watched.sample is None or watched.signals is None:
            return None
        # A scan is of one tick only; what it found counts for the following ones too.
        own = watched.sample
        if own.residency is None and watched.residency is not None:
            own = msgspec.structs.replace(own, residency=watched.residency)
        sight = Sight(own, watched.facts, watched.signals.dt_seconds, self._sampler.troubles, watched.residency_unknown)
        return explain(
            watched.detector, watched.verdict, signals.complete(watched.signals), sight, detector_settings(settings)
        )

    @property
    def last_samples(self) -> list[Sample]:
        """The last two, oldest first; fewer in the beginning."""
        return list(self._last)

    def close(self) -> None:
        """Give the descriptors back."""
        self._sampler.close()

    def look(
        self,
        backends: Sequence[Watched],
        settings: Settings,
        now: float,
        interval_seconds: float | None = None,
        *,
        may_restart: bool,
    ) -> None:
        """Read everything once and decide for each backend. `interval_seconds`: between looks now; None: as configured."""
        if self._kept is not None:
            self._kept.follow(backends, now)
        identities = [watched.identity for watched in backends]
        fresh = max(HTTP_FRESH_SECONDS, 2 * (interval_seconds or settings.interval_seconds))
        raw = self._sampler.read(identities, {watched.name: watched.raw(now, fresh) for watched in backends})
        sample = assemble(raw, identities)
        self._last = (*self._last[-1:], sample)
        windows, self._windows = self._windows, {}
        limits = detector_settings(settings)
        if self._neighbours is not None:
            self._neighbours.tick(backends, sample.machine, now)
        for watched, own in zip(backends, sample.backends, strict=True):
            watched.sample = own
            if own.residency is not None:
                watched.residency, watched.residency_at = own.residency, now
            window = next_window(windows.get(watched.name), sample, watched.name, watched.facts, WINDOW_SECONDS)
            assert window is not None
            self._windows[watched.name] = window
            self._decide(watched, window, settings, limits, now)
            given_up = self._kept is not None and self._kept.gives_up_for(watched)
            if may_restart and not given_up:
                self._relieve(watched, settings, now, backends)
            self._care.tick(watched, settings, now)

    def _decide(
        self, watched: Watched, window: Window, settings: Settings, limits: DetectorSettings, now: float
    ) -> None:
        own = watched.sample
        assert own is not None
        watched.signals = signals.on_demand(window, watched.name, window.now.at_seconds)
        kills = watched.detector.phase.oom_kills
        step = detector.step(watched.detector, watched.signals, own, window.facts, limits)
        watched.detector, watched.verdict = step.state, step.verdict
        oom_killed = kills is not None and (step.state.phase.oom_kills or 0) > kills
        watched.memory = msgspec.structs.replace(
            memory_view(window.now.machine, own, window.now.rooms),
            seconds_to_limit=watched.signals.get("seconds_to_limit"),
            growth_kind=step.state.memory.growth.growth.kind.value,
            growth=step.state.memory.growth.growth.text or None,
        )
        warms = watched.warming is not None or watched.warm_wanted is not None
        watched.limits = memory_under_each(window.now.machine, own) if warms else ()
        if watched.supervisor is not None:
            busy = watched.signals.get("busy_slots")
            watched.supervisor.hear(None if busy is None else int(busy), watched.http_asked_at)
        self._note_health(watched, settings, now)
        self._note_cache(watched, now)
        if watched.verdict.paging == Paging.STEADY and watched.verdict.phase == Phase.DECODE and watched.residency:
            watched.cache_when_steady_bytes = watched.residency.resident_bytes
        warm_baseline.keep(watched, now)
        for begun in step.begun:
            if begun.name in (EventName.BACKEND_DOWN, EventName.BACKEND_RECOVERED):
                if not _tells(watched, begun, oom_killed=oom_killed):
                    continue
                begun = msgspec.structs.replace(begun, name=_exact(begun, oom_killed=oom_killed))
            if begun.name is EventName.BACKEND_HUNG:
                message = f"{begun.message}. {hanging.outlook(watched, settings)}"
                begun = msgspec.structs.replace(begun, message=message)
            if begun.name is EventName.MEMORY_NEAR_LIMIT:
                advice = relieving.advice(watched, settings, now)
                if advice is not None:
                    begun = msgspec.structs.replace(begun, message=f"{begun.message}. {advice}")
            if self._neighbours is None:
                self._announcer.say(begun.name, watched.name, begun.message, begun.reasons)
            else:
                self._neighbours.tell(watched, begun, now)
            if begun.name is EventName.CACHE_EVICTED and settings.warm_enabled and watched.supervisor is not None:
                self._care.want_warm(watched, "its model left the page cache while nobody asked anything")
        self._end_left_open(watched, now)

    def _end_left_open(self, watched: Watched, now: float) -> None:
        """Tell the end of what was told to have begun before it was watched from here, once it is sure to be over: else it would never be."""
        http = None if watched.sample is None else watched.sample.http
        ready = http is not None and http.health == "ok"
        restarting = watched.supervisor is not None and watched.supervisor.restarting
        ends: dict[EventName, str] = {}  # one may end two
        for told in [about for about in self._well_since if about not in self._announcer.left_open]:
            del self._well_since[told]
        for about in sorted(pair for pair in self._announcer.left_open if pair[0] == watched.name):
            nothing = left_open.came_to_nothing(about[1], watched.verdict, restarting=restarting)
            if not nothing and not left_open.is_well(about[1], watched.verdict, ready=ready):
                self._well_since.pop(about, None)
            elif now - self._well_since.setdefault(about, now) >= left_open.SURE_SECONDS:
                ends.update([left_open.NOTHING if nothing else left_open.end_of(about[1])])
        for name, message in ends.items():
            self._announcer.say(name, watched.name, message, restarting=False)

    @staticmethod
    def _note_cache(watched: Watched, now: float) -> None:
        if watched.cache_stands_in_until is not None and now >= watched.cache_stands_in_until:
            watched.cache_stands_in_until = None
        # While the earlier daemon's figure stands in, it stays: the cache may have been lost since.
        cgroup = None if watched.sample is None else watched.sample.cgroup
        if watched.calm and watched.cache_stands_in_until is None and cgroup is not None:
            size, shared = cgroup.file_bytes, cgroup.shared_bytes or 0
            watched.cache_when_calm_bytes = None if size is None else max(0, size - shared)

    def _note_health(self, watched: Watched, settings: Settings, now: float) -> None:
        http = None if watched.sample is None else watched.sample.http
        if http is None or watched.process is None or watched.ready_at is not None:
            return
        supervisor = watched.supervisor
        if http.health != "ok":
            watched.seen_loading = watched.seen_loading or http.health in ("loading", "unreachable")
            return
        if supervisor is not None and supervisor.state.stage not in (Stage.LOADING, Stage.READY):
            return  # It is on its way out.
        watched.ready_at = now
        watched.next_residency = now
        if watched.seen_loading:  # One that was taken over may have grown already.
            watched.own_bytes_when_ready = watched.own_bytes()
        if supervisor is None:
            return
        supervisor.healthy()
        # One that was taken over while it ran has long read what it needs, unless the daemon before died over it.
        just_loaded = watched.seen_loading or supervisor.adopted_age_seconds is None
        if settings.warm_enabled and (just_loaded or supervisor.warm_owed):
            why = "the backend has loaded" if just_loaded else "moetuned has not warmed it yet"
            self._care.want_warm(watched, why)
        if just_loaded:
            self._care.want_prompts(watched, settings)

    def relief_plan(self, watched: Watched, settings: Settings) -> ReliefPlan:
        """What relief would do now, worked out from what the last tick left."""
        return relieving.plan_of(watched, settings, watched.verdict.at_seconds)

    def _relieve(self, watched: Watched, settings: Settings, now: float, backends: Sequence[Watched]) -> None:
        returning.reconsider(watched)
        relieving.relieve(watched, settings, now, self._care, self._announcer, self._neighbours, backends)
        hanging.end_hung(watched, settings)
        returning.give_back(watched, settings, now)


def _is_hang(begun: detector.Begun) -> bool:
    return any(reason.signal == "hung" for reason in begun.reasons)


def _exact(begun: detector.Begun, *, oom_killed: bool) -> EventName:
    """The event of its cause, as far as the detector's word and the cgroup's counter tell it."""
    if begun.name is not EventName.BACKEND_DOWN:
        return begun.name
    if _is_hang(begun):
        return EventName.BACKEND_HUNG
    return EventName.BACKEND_OOM_KILLED if oom_killed else EventName.BACKEND_DOWN


def _tells(watched: Watched, begun: detector.Begun, *, oom_killed: bool) -> bool:
    """Whether the detector's word that it is down, or up again, is an event.

    A supervisor knows why and says so itself. One that nobody configured was most likely ended by its owner and comes and goes as
    it likes: the log has it, and only the OOM killer's work is an event. That one hangs only the detector knows.
    """
    name = begun.name
    if name == EventName.BACKEND_DOWN and _is_hang(begun):
        own = watched.supervisor is None or watched.supervisor.state.stage == Stage.READY
        watched.hung_told = own and not hanging.frozen_by_cgroup(watched)
        return watched.hung_told
    if name == EventName.BACKEND_RECOVERED and watched.hung_told:
        watched.hung_told = False
        if watched.supervisor is not None:
            watched.supervisor.state = answers(watched.supervisor.state)
        return True
    if watched.supervisor is not None:
        return False
    if name == EventName.BACKEND_DOWN:
        watched.down_told = watched.config is not None or oom_killed
    return watched.down_told
