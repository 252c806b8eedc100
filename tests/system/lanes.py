"""Runs the system tests in two lanes: two runs of pytest at the same time, which share the tests out. A guest keeps about one processor busy.

Arguments are pytest's. LANES=1: one after the other. Exits with the first failure's status.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from package import BUILD

NO_TESTS = 5
"""pytest's exit status where it has collected none: the other lane has them all."""


def main(arguments: list[str]) -> int:
    """Start the lanes and wait for them."""
    lanes = int(os.environ.get("LANES") or 2)
    command = [sys.executable, "-m", "pytest", "-s", "-v", "-m", "vm", str(Path(__file__).parent), *arguments]
    shutil.rmtree(BUILD / "out", ignore_errors=True)
    taken = BUILD / "out" / "taken"
    taken.mkdir(parents=True)
    # One for all lanes: each draws the same disasters.
    seed = os.environ.get("SEED") or str(time.time_ns() % 1_000_000)
    environment = {**os.environ, "TAKEN": str(taken), "SEED": seed}
    running = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) for _ in range(lanes)]
    try:
        ended = [lane.wait() for lane in running]
    except BaseException:
        for lane in running:
            lane.terminate()
        raise
    if all(status == NO_TESTS for status in ended):
        return NO_TESTS
    return next((status for status in ended if status not in (0, NO_TESTS)), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
