"""The detector's limits as a config has them."""

from __future__ import annotations

import pytest

from moetuned.daemon.settings import detector_settings
from moetuned.daemon.settings import settings_of as daemon_settings_of
from moetuned.decide.detector import DetectorSettings
from moetuned.decide.detector_limits import settings_of
from moetuned.schema.config import Config, Limits


def test_sizes_go_before_the_defaults() -> None:
    told = settings_of(Config(limits=Limits(near="2GiB", critical="5%")))
    assert (told.near_headroom_bytes, told.near_headroom_ratio) == (2 << 30, DetectorSettings().near_headroom_ratio)
    assert (told.critical_headroom_bytes, told.critical_headroom_ratio) == (None, 0.05)


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(near="1GiB", critical="512MiB"), Limits(near="20%", critical="10%")]
)
def test_the_daemon_has_the_same(limits: Limits) -> None:
    config = Config(limits=limits)
    assert settings_of(config) == detector_settings(daemon_settings_of(config))
