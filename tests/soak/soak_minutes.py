"""The daemon as a process for real minutes, beside a stand-in that is asked all the time and squeezed again and again: `--minutes N`.

Prints what the daemon holds after the warm-up and at the end. Exit code 0: nothing grew and nothing was violated; 1: something did.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from relief_checks import BackendRun, Run, row, table, violations
from relief_hog import hog
from relief_place import place
from relief_scene import BackendSpec, Scene, answered_whole, finish, free_port, scene, short_question
from soak_growth import growth, most

from moetuned.simulator.make_model import main as make_model

MIB = 1 << 20
LIMIT_BYTES, LEFT_BYTES = 512 * MIB, 24 * MIB
LOOK_SECONDS = 5.0
SQUEEZE_SECONDS = 45.0
"""So long it is squeezed, and so long it is left alone."""
WINDOW_SHARE = 0.25
COOL_DOWN_SECONDS = 10.0
RSS_GROWTH_BYTES = 2 * MIB
CONFIG = {
    "watch": {"discover": False},
    "relief": {"mode": "act", "cool_down": f"{COOL_DOWN_SECONDS:g}s", "at_most": "999/h"},
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args(argv).minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whatever was made is taken back
    directory = Path(tempfile.mkdtemp(prefix="moetuned-soak-", dir="/var/tmp"))
    try:
        return _soak(directory, minutes * 60.0)
    finally:
        shutil.rmtree(directory)


def _soak(directory: Path, seconds: float) -> int:
    model = directory / "model.gguf"
    assert make_model([str(model), "--size", "40M"]) == 0
    command = (
        sys.executable, "-m", "moetuned.simulator", "serve", "-m", "{model}", "--port", str(free_port()), "--metrics", "-t", "1",
        "-c", "{context}", "--cache-ram", "{prompt_cache_mib}",
    )  # fmt: skip
    spec = BackendSpec("glm", "simulator", command, model, 24576, 1024, prompt_cache_mib=16)
    run = Run("soak", LIMIT_BYTES, COOL_DOWN_SECONDS, [BackendRun("glm", spec.minimum, 5.0)], strict=False)
    with place(LIMIT_BYTES) as cgroup, scene(directory / "run", cgroup, (spec,), CONFIG) as found:
        found.ready()
        found.ask(spec, answered_whole(short_question), pause_seconds=0.5)
        first, last = _minutes(found, spec, seconds)
        finish(found, run)
    print(table([row(run)]))
    wrong = violations(run) + growth(first, last, RSS_GROWTH_BYTES)
    for what in ("fds", "threads", "rss"):
        print(f"{what}: at most {first[what]} after the warm-up, {last[what]} at the end")
    print("\n".join(wrong) or "nothing grew")
    return 1 if wrong else 0


def _minutes(found: Scene, spec: BackendSpec, seconds: float) -> tuple[dict[str, int], dict[str, int]]:
    """What the daemon holds at most in the second quarter of the time, and in the last."""
    held: list[tuple[float, dict[str, int]]] = []
    began = time.monotonic()

    def look_until(then: float) -> None:
        while time.monotonic() < min(then, began + seconds):
            held.append(((time.monotonic() - began) / seconds, holds(found.daemon.process.pid)))
            time.sleep(LOOK_SECONDS)

    while time.monotonic() < began + seconds:
        look_until(time.monotonic() + SQUEEZE_SECONDS)
        size = found.headroom_bytes(spec) - LEFT_BYTES
        with hog(found.place, max(size, MIB), 100 * MIB):
            look_until(time.monotonic() + SQUEEZE_SECONDS)
    second = [one for at, one in held if WINDOW_SHARE <= at < 2 * WINDOW_SHARE]
    return most(second), most([one for at, one in held if at >= 1 - WINDOW_SHARE])


def holds(pid: int) -> dict[str, int]:
    """Of another process: open files, threads, resident bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return {
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
