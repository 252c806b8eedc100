"""The detector's settings as a config has them: for the daemon, and for `moetunectl replay --config` to be as the daemon."""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.parse.config_values import HeadroomLimit, headroom_limit
from moetuned.schema.config import Config


def with_limits(near: HeadroomLimit, critical: HeadroomLimit) -> DetectorSettings:
    """The defaults with these limits; a size goes before the default's ratio."""
    default = DetectorSettings()
    return msgspec.structs.replace(
        default,
        near_headroom_bytes=near.size_bytes,
        critical_headroom_bytes=critical.size_bytes,
        near_headroom_ratio=default.near_headroom_ratio if near.ratio is None else near.ratio,
        critical_headroom_ratio=default.critical_headroom_ratio if critical.ratio is None else critical.ratio,
    )


def settings_of(config: Config) -> DetectorSettings:
    """Those of a checked config. Raises ValueError for one that was not checked."""
    return with_limits(headroom_limit(config.limits.near), headroom_limit(config.limits.critical))
