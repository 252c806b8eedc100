"""The configuration as numbers."""

from __future__ import annotations

import pytest

from moetuned.daemon.settings import (
    CACHE_SHARE,
    TARGET_FACTOR,
    detector_settings,
    relief_settings,
    return_margin_bytes,
    settings_of,
)
from moetuned.decide.detector import DetectorSettings
from moetuned.schema.config import Config, Limits, Mode, Relief, Warm, Watch
from moetuned.schema.relief import DEFAULT_STEPS, BeforeStart, GrowBack, StepName

GIB = 1 << 30


def test_defaults_watch_and_do_nothing() -> None:
    settings = settings_of(Config())
    assert (settings.interval_seconds, settings.residency_seconds, settings.discover) == (1.0, 10.0, True)
    assert not settings.act
    assert (settings.at_most, settings.at_most_seconds, settings.cool_down_seconds) == (3, 3600.0, 120.0)
    assert (settings.warm_budget_bytes, settings.warm_rate_bytes_per_second) == (None, None)


def test_texts_become_numbers() -> None:
    config = Config(
        watch=Watch(interval="200ms", discover=False, residency_every=2),
        warm=Warm(enabled=False, budget="4GiB", rate="100M"),
        relief=Relief(mode=Mode.ACT, at_most="2/d", cool_down="5m"),
    )
    settings = settings_of(config)
    assert settings.interval_seconds == pytest.approx(0.2)
    assert settings.act
    assert (settings.at_most, settings.at_most_seconds, settings.cool_down_seconds) == (2, 86400.0, 300.0)
    assert (settings.warm_enabled, settings.warm_budget_bytes) == (False, 4 * GIB)
    assert settings.warm_rate_bytes_per_second == 100 << 20


def test_limits_as_sizes_and_as_shares() -> None:
    sized = detector_settings(settings_of(Config(limits=Limits(near="2GiB", critical="512MiB"))))
    assert (sized.near_headroom_bytes, sized.critical_headroom_bytes) == (2 * GIB, GIB // 2)
    shares = detector_settings(settings_of(Config(limits=Limits(near="20%", critical="10%"))))
    assert (shares.near_headroom_bytes, shares.critical_headroom_bytes) == (None, None)
    assert (shares.near_headroom_ratio, shares.critical_headroom_ratio) == (pytest.approx(0.2), pytest.approx(0.1))
    assert shares.near_seconds == DetectorSettings().near_seconds


def test_what_relief_may_do() -> None:
    relief = Relief(
        steps=[StepName.ONE_SLOT],
        minimum_context=4096,
        settle="10s",
        before_start=BeforeStart.REFUSE,
        drain="1m",
        pause=False,
    )
    settings = settings_of(Config(relief=relief))
    assert (settings.steps, settings.minimum_context) == ((StepName.ONE_SLOT,), 4096)
    assert (settings.settle_seconds, settings.before_start) == (10.0, BeforeStart.REFUSE)
    assert (settings.drain_seconds, settings.pause) == (60.0, False)
    assert settings_of(Config()).steps == DEFAULT_STEPS


def test_relief_wants_more_than_the_near_limit_and_bounded_room_for_the_cache() -> None:
    settings = settings_of(Config(limits=Limits(near="1GiB", critical="512MiB")))
    without = relief_settings(settings, 8 * GIB, None)
    assert without.target_headroom_bytes == int(GIB * TARGET_FACTOR)
    some = relief_settings(settings, 8 * GIB, GIB)
    assert some.target_headroom_bytes == without.target_headroom_bytes + GIB
    assert (
        relief_settings(settings, 8 * GIB, GIB, GIB // 4).target_headroom_bytes == some.target_headroom_bytes - GIB // 4
    )
    assert relief_settings(settings, 8 * GIB, GIB, 9 * GIB) == without, "what is kept needs no headroom"
    much = relief_settings(settings, 8 * GIB, 100 * GIB)
    assert (much.settle_seconds, much.looks) == (5.0, 2)
    assert much.target_headroom_bytes == without.target_headroom_bytes + 8 * GIB // CACHE_SHARE


def test_what_is_given_back_and_how_much_is_left_then() -> None:
    settings = settings_of(Config(limits=Limits(near="8%", critical="3%")))
    assert settings.grow_back
    assert not settings_of(Config(relief=Relief(grow_back=GrowBack.OFF))).grow_back
    assert return_margin_bytes(settings, 1000) == 40
