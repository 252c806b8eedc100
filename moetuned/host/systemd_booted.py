"""Whether systemd is this machine's service manager."""

from __future__ import annotations

import os

BOOTED = "/run/systemd/system"
"""Where systemd is this machine's service manager, this directory is there (sd_booted(3))."""


def is_booted() -> bool:
    """Whether systemd is this machine's service manager."""
    return os.path.isdir(BOOTED)
