"""The configuration as numbers: what the loop, the detector and relief use. Texts were checked when the config was read."""

from __future__ import annotations

import msgspec

from moetuned.decide.detector import DetectorSettings
from moetuned.decide.detector_limits import with_limits
from moetuned.decide.relief import ReliefSettings
from moetuned.parse.config_values import HeadroomLimit, at_most, headroom_limit
from moetuned.schema.capability import TurnedOff
from moetuned.schema.config import Config, Mode, Protect
from moetuned.schema.relief import BeforeStart, GrowBack, StepName
from moetuned.schema.units import parse_bytes, parse_duration

TARGET_FACTOR = 1.5
"""Relief restores this many times the near limit, so that it is left for good (the detector lets go at 1.25 times)."""
CACHE_SHARE = 4
"""And room for the page cache the model ran well with, at most this part of the limit."""

MARGIN_SHARE = 2
"""A return of the context leaves this part of the near limit beyond what relief restores."""

LOOKS = 2
"""Relief samples again before it acts, unless the limit would come before that."""


class Settings(msgspec.Struct, frozen=True):
    """Numbers of a Config; seconds and bytes."""

    interval_seconds: float
    idle_interval_seconds: float
    residency_seconds: float
    discover: bool
    near: HeadroomLimit
    critical: HeadroomLimit
    act: bool
    at_most: int
    at_most_seconds: float
    cool_down_seconds: float
    settle_seconds: float
    drain_seconds: float
    pause: bool
    steps: tuple[StepName, ...]
    minimum_context: int | None
    before_start: BeforeStart
    restart_hung_seconds: float | None
    """None: never."""
    grow_back: bool
    warm_enabled: bool
    warm_budget_bytes: int | None
    warm_rate_bytes_per_second: int | None
    protect: Protect
    prompts: str
    prompts_seconds: int
    off: tuple[TurnedOff, ...] = ()
    """What the machine refused when it was rehearsed."""


def settings_of(config: Config) -> Settings:
    """Numbers of a checked config. Raises ValueError for one that was not checked."""
    count, period = at_most(config.relief.at_most)
    return Settings(
        interval_seconds=parse_duration(config.watch.interval),
        idle_interval_seconds=parse_duration(config.watch.idle_interval),
        residency_seconds=parse_duration(config.watch.residency_every),
        discover=config.watch.discover,
        near=headroom_limit(config.limits.near),
        critical=headroom_limit(config.limits.critical),
        act=config.relief.mode == Mode.ACT,
        at_most=count,
        at_most_seconds=period,
        cool_down_seconds=parse_duration(config.relief.cool_down),
        settle_seconds=parse_duration(config.relief.settle),
        drain_seconds=parse_duration(config.relief.drain),
        pause=config.relief.pause,
        steps=tuple(config.relief.steps),
        minimum_context=config.relief.minimum_context,
        before_start=config.relief.before_start,
        restart_hung_seconds=_unless_off(config.relief.restart_hung),
        grow_back=config.relief.grow_back is GrowBack.WHEN_IDLE,
        warm_enabled=config.warm.enabled,
        warm_budget_bytes=None if config.warm.budget == "auto" else parse_bytes(config.warm.budget),
        warm_rate_bytes_per_second=None if config.warm.rate is None else parse_bytes(config.warm.rate),
        protect=config.warm.protect,
        prompts=config.warm.prompts,
        prompts_seconds=config.warm.prompts_seconds,
    )


def _unless_off(duration: str | float) -> float | None:
    return None if duration == "off" else parse_duration(duration)


def detector_settings(settings: Settings) -> DetectorSettings:
    """Limits for the detector."""
    return with_limits(settings.near, settings.critical)


def relief_settings(
    settings: Settings, limit_bytes: int, cache_when_steady_bytes: int | None, kept_bytes: int = 0
) -> ReliefSettings:
    """Limits for relief under a memory limit; `cache_when_steady_bytes`: of the model resident when it last ran well, for which no headroom
    is needed as far as it is kept (`kept_bytes`).
    """
    cache = min(max(0, (cache_when_steady_bytes or 0) - kept_bytes), limit_bytes // CACHE_SHARE)
    near = settings.near.of(limit_bytes)
    return ReliefSettings(
        act=settings.act,
        at_most=settings.at_most,
        at_most_seconds=settings.at_most_seconds,
        cool_down_seconds=settings.cool_down_seconds,
        target_headroom_bytes=int(near * TARGET_FACTOR) + cache,
        near_headroom_bytes=near,
        steps=settings.steps,
        settle_seconds=settings.settle_seconds,
        looks=LOOKS,
        drain_seconds=settings.drain_seconds,
    )


def return_margin_bytes(settings: Settings, limit_bytes: int) -> int:
    """What is left beyond relief's target when something is given back."""
    return settings.near.of(limit_bytes) // MARGIN_SHARE
