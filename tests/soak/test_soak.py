"""Hours of ticks with relief, restarts and thrashes leave nothing behind: an hour and a half here, SOAK_HOURS=24 for the day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from soak_growth import growth

HOURS = float(os.environ.get("SOAK_HOURS", "3"))
TESTS = Path(__file__).parents[1]


@pytest.mark.timeout(3600)
def test_nothing_grows(tmp_path: Path) -> None:
    paths = [str(TESTS / part) for part in ("..", ".", "bench", "daemon")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(Path(__file__).with_name("soak_day.py")), str(tmp_path), str(int(HOURS * 3600))]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for event in (
        "memory_near_limit",
        "backend_restarted",
        "backend_down",
        "backend_recovered",
        "thrash_begin",
        "thrash_end",
    ):
        assert found["events"].get(event), f"{event} never came: {found}"
    assert growth(found["after_warm_up"], found["at_the_end"]) == []
