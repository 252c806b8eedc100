"""Programs of Debian's packages that some tests need: on PATH, or unpacked by .ci/run; a test without one is skipped."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

UNPACKED = Path(__file__).parents[2] / "build" / "debian" / "usr" / "bin"
PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "prometheus-node-exporter": "prometheus-node-exporter",
}


def program(name: str) -> str:
    """Path of the program; skips the test where it is not."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), str(UNPACKED))))
    if found is None:
        pytest.skip(f"there is no {name} here; Debian's package {PACKAGES[name]} has it")
    return found
