"""Runs the system tests in two lanes: two runs of pytest at the same time, each with every second test. A guest keeps about one processor busy.

Arguments are pytest's. LANES=1: one after the other. Exits with the first failure's status.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from package import BUILD

NO_TESTS = 5
"""pytest's exit status where it has collected none: the other lane has them all."""


def main(arguments: list[str]) -> int:
    """Start the lanes and wait for them."""
    lanes = int(os.environ.get("LANES") or 2)
    command = [sys.executable, "-m", "pytest", "-s", "-v", "-m", "vm", str(Path(__file__).parent), *arguments]
    shutil.rmtree(BUILD / "out", ignore_errors=True)
    running = [
        subprocess.Popen(command, env={**os.environ, "LANE": f"{lane}/{lanes}"}, stdin=subprocess.DEVNULL)
        for lane in range(lanes)
    ]
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
