"""One look at all backends: sample, signals, verdict, and the relief that follows from it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import msgspec

from moetuned.daemon import warm_baseline
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.model_care import ModelCare, kv_cost
from moetuned.daemon.settings import Settings, detector_settings, relief_settings
from moetuned.daemon.watched import Watched
from moetuned.decide import detector, relief, signals
from moetuned.decide.memory_headroom import memory_view
from moetuned.decide.supervision import LaunchPlan, Stage
from moetuned.host.clock import Clock
from moetuned.host.sampler import Sampler
from moetuned.parse.assemble import assemble
from moetuned.schema.event import EventName
from moetuned.schema.sample import Sample
from moetuned.schema.verdict import Paging, Phase

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60.0
HTTP_FRESH_SECONDS = 4.0
"""An answer over HTTP is one for this long, or for two ticks where those are longer."""
_DEFAULT_MINIMUM_CONTEXT = 2048


class Judge:
    """Holds the last minute of samples and an open descriptor for each file of the tick. Belongs to the loop's thread."""

    def __init__(self, clock: Clock, care: ModelCare, announcer: Announcer, root: str = "/") -> None:
        """`root`: where the machine's files are, another directory for fixtures."""
        self._sampler = Sampler(clock, root)
        self._care = care
        self._announcer = announcer
        self._window: deque[Sample] = deque(maxlen=1024)

    @property
    def source_errors(self) -> dict[str, int]:
        """Failed reads by path."""
        return self._sampler.errors

    @property
    def last_samples(self) -> list[Sample]:
        """The last two, oldest first; fewer in the beginning."""
        return [self._window[index] for index in range(-min(2, len(self._window)), 0)]

    def close(self) -> None:
        """Give the descriptors back."""
        self._sampler.close()

    def look(self, backends: Sequence[Watched], settings: Settings, now: float, *, may_restart: bool) -> None:
        """Read everything once and decide for each backend."""
        identities = [watched.identity for watched in backends]
        fresh = max(HTTP_FRESH_SECONDS, 2 * settings.interval_seconds)
        raw = self._sampler.read(identities, {watched.name: watched.raw(now, fresh) for watched in backends})
        sample = assemble(raw, identities)
        while self._window and sample.at_seconds - self._window[0].at_seconds > WINDOW_SECONDS:
            self._window.popleft()
        self._window.append(sample)
        window = list(self._window)
        for watched, own in zip(backends, sample.backends, strict=True):
            watched.sample = own
            if own.residency is not None:
                watched.residency, watched.residency_at = own.residency, now
            self._decide(watched, window, settings, now)
            if may_restart:
                self._relieve(watched, settings, now)
            self._care.tick(watched, settings, now)

    def _decide(self, watched: Watched, window: list[Sample], settings: Settings, now: float) -> None:
        own = watched.sample
        assert own is not None
        watched.signals = signals.derive(window, watched.name, watched.facts)
        kills = watched.detector.phase.oom_kills
        step = detector.step(watched.detector, watched.signals, own, watched.facts, detector_settings(settings))
        watched.detector, watched.verdict = step.state, step.verdict
        oom_killed = kills is not None and (step.state.phase.oom_kills or 0) > kills
        watched.memory = msgspec.structs.replace(
            memory_view(window[-1].machine, own), seconds_to_limit=watched.signals.get("seconds_to_limit")
        )
        self._note_health(watched, settings, now)
        self._note_cache(watched, now)
        if watched.verdict.paging == Paging.STEADY and watched.verdict.phase == Phase.DECODE and watched.residency:
            watched.cache_when_steady_bytes = watched.residency.resident_bytes
        warm_baseline.keep(watched, now)
        for begun in step.begun:
            if begun.name in (EventName.BACKEND_DOWN, EventName.BACKEND_RECOVERED) and not _tells(
                watched, begun.name, oom_killed=oom_killed
            ):
                continue
            self._announcer.say(begun.name, watched.name, begun.message, begun.reasons)
            if begun.name is EventName.CACHE_EVICTED and settings.warm_enabled and watched.supervisor is not None:
                self._care.want_warm(watched, "its model left the page cache while nobody asked anything")

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
        if supervisor is None:
            return
        supervisor.healthy()
        # One that was taken over while it ran has long read what it needs.
        if watched.seen_loading or supervisor.adopted_age_seconds is None:
            if settings.warm_enabled:
                self._care.want_warm(watched, "the backend has loaded")
            self._care.want_prompts(watched, settings)

    def _relieve(self, watched: Watched, settings: Settings, now: float) -> None:
        memory, supervisor = watched.memory, watched.supervisor
        if memory.limit_bytes is None:
            watched.would_do = ()
            return
        limits = relief_settings(settings, memory.limit_bytes, watched.cache_when_steady_bytes)
        decided = relief.step(watched.relief, watched.verdict, memory, _relief_facts(watched), limits, now)
        watched.relief, watched.would_do = decided.state, decided.would_do
        if decided.exhausted is not None:
            message = f"{watched.name}: memory is near its limit and moetuned can free no more: {decided.exhausted}"
            reasons = tuple(reason for reason in watched.verdict.reasons if reason.axis == "memory")
            self._announcer.say(EventName.RELIEF_EXHAUSTED, watched.name, message, reasons)
        if decided.restart is not None and supervisor is not None:
            restart = decided.restart
            log.warning("%s: restarting it: %s", watched.name, restart.reason)
            self._care.end(watched)
            cache = restart.prompt_cache_mib
            if cache is None:
                cache = supervisor.state.plan.prompt_cache_mib
            supervisor.restart(LaunchPlan(restart.context_length, cache))


def _tells(watched: Watched, name: EventName, *, oom_killed: bool) -> bool:
    """Whether the detector's word that it is down, or up again, is an event.

    A supervisor knows why and says so itself. One that nobody configured was most likely ended by its owner and comes and goes as
    it likes: the log has it, and only the OOM killer's work is an event.
    """
    if watched.supervisor is not None:
        return False
    if name == EventName.BACKEND_DOWN:
        watched.down_told = watched.config is not None or oom_killed
    return watched.down_told


def _relief_facts(watched: Watched) -> relief.ReliefFacts:
    supervisor = watched.supervisor
    context = None if watched.config is None else watched.config.context
    return relief.ReliefFacts(
        supervised=supervisor is not None,
        context_changeable=supervisor is None or supervisor.sets("{context}"),
        prompt_cache_changeable=supervisor is not None and supervisor.sets("{prompt_cache_mib}"),
        context_length=watched.context_now(),
        minimum_context=_DEFAULT_MINIMUM_CONTEXT if context is None else context.minimum,
        prompt_cache_mib=watched.prompt_cache_mib(),
        kv_bytes_per_token=kv_cost(watched),
        ready=watched.ready_at is not None and (supervisor is None or supervisor.state.stage == Stage.READY),
    )
