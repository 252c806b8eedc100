"""Runs the system tests in two lanes: two runs of pytest at the same time, which share the tests out. A guest keeps about one processor busy.

Arguments are pytest's. LANES=1: one after the other. Exits with the first failure's status.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from package import BUILD

NO_TESTS = 5
"""pytest's exit status where it has collected none: the other lane has them all."""

INTERRUPTED = 130


def interrupt(running: list[subprocess.Popen[bytes]]) -> None:
    """What Ctrl-C does, for each: pytest takes its machines down. After another Ctrl-C they are killed, and their guests with them."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # make passes on what its whole group has got already
        signal.signal(number, signal.SIG_IGN)
    try:
        for lane in running:
            lane.send_signal(signal.SIGINT)
        for lane in running:
            lane.wait()
    except KeyboardInterrupt:
        for lane in running:
            lane.kill()
            lane.wait()


def main(arguments: list[str]) -> int:
    """Start the lanes and wait for them. SIGTERM, SIGHUP and Ctrl-C end them, and it waits for that."""
    lanes = int(os.environ.get("LANES") or 2)
    command = [sys.executable, "-m", "pytest", "-s", "-v", "-m", "vm", str(Path(__file__).parent), *arguments]
    shutil.rmtree(BUILD / "out", ignore_errors=True)
    taken = BUILD / "out" / "taken"
    taken.mkdir(parents=True)
    # One for all lanes: each draws the same disasters.
    seed = os.environ.get("SEED") or str(time.time_ns() % 1_000_000)
    environment = {**os.environ, "TAKEN": str(taken), "SEED": seed}
    # Where this was started in the background of a script, Ctrl-C is ignored, and would be by pytest, too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    running: list[subprocess.Popen[bytes]] = []
    try:
        # Sessions of their own: a terminal's Ctrl-C comes from here, once.
        running.extend(
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
            for _ in range(lanes)
        )
        ended = [lane.wait() for lane in running]
    except KeyboardInterrupt:
        interrupt(running)
        return INTERRUPTED
    if all(status == NO_TESTS for status in ended):
        return NO_TESTS
    return next((status for status in ended if status not in (0, NO_TESTS)), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
