"""Runs the matrix of relief and prints a table: `python relief_matrix.py real|stand-in --runs N [--only NAME] [--seed N]`.

Exit code 0: nothing was violated; 1: something was.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import relief_faults
import relief_managed
import relief_real
from relief_checks import Run, row, table, violations
from relief_real import SCENARIOS, Lab


def real(directory: Path, arguments: argparse.Namespace) -> int:
    """Every scenario, so many times."""
    lab = Lab(directory, relief_real.make(directory / "model.gguf", arguments.size), arguments.backend)
    rows, bad = [], 0
    for number in range(arguments.runs):
        for name in arguments.only or SCENARIOS:
            began = time.monotonic()
            run = SCENARIOS[name](lab)
            rows.append(row(run))
            bad += _say(f"{number + 1}/{arguments.runs} {name}", run, began)
    print(table(rows))
    return 1 if bad else 0


def stand_in(directory: Path, arguments: argparse.Namespace) -> int:
    """So many runs with faults drawn from the seed on, of a child of the daemon's and of a backend that another manager runs; several at a
    time, each on a disk of its own.
    """
    disks: queue.SimpleQueue[relief_faults.Disk] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        for number in range(arguments.jobs):
            (directory / f"disk-{number}").mkdir()
            disks.put(stack.enter_context(relief_faults.own_disk(directory / f"disk-{number}")))

        def one(what: tuple[int, bool]) -> Run:
            seed, managed = what
            disk, began = disks.get(), time.monotonic()
            try:
                if managed:
                    run = relief_managed.run(disk, directory / f"managed-{seed}", relief_managed.draw(seed))
                else:
                    run = relief_faults.run(disk, directory / f"run-{seed}", relief_faults.draw(seed))
            finally:
                disks.put(disk)
            _say("", run, began)
            return run

        with ThreadPoolExecutor(arguments.jobs) as pool:
            seeds = range(arguments.seed, arguments.seed + arguments.runs)
            wanted = arguments.only or ["child", "managed"]
            runs = list(pool.map(one, [(seed, what == "managed") for what in wanted for seed in seeds]))
    print(table([row(run) for run in runs]))
    bad = sum(bool(violations(run)) for run in runs)
    print(f"{len(runs)} runs, {bad} of them with a violation")
    return 1 if bad else 0


def _say(before: str, run: Run, began: float) -> bool:
    wrong = violations(run)
    print(f"{before or run.scenario} {time.monotonic() - began:.0f} s: {'; '.join(wrong) or 'ok'}", flush=True)
    return bool(wrong)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("real", "stand-in"))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument(
        "--only", action="append", help="a scenario, or child or managed (stand-in); can be given again"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones follow (stand-in)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time (stand-in)")
    parser.add_argument("--size", default="320M", help="size of the model")
    parser.add_argument("--backend", default="auto", help="llama-server, wheel or auto")
    parser.add_argument("--keep", action="store_true", help="leave logs and configs where they are")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whatever was made is taken back
    directory = Path(tempfile.mkdtemp(prefix="moetuned-relief-", dir="/var/tmp"))
    try:
        return {"real": real, "stand-in": stand_in}[arguments.what](directory, arguments)
    finally:
        if arguments.keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
