"""The daemon's own code in a process of its own, as fast as it goes, with a clock that this program moves. Run by test_bench_tick.py.

hour DIRECTORY TICKS URL...: ticks that watch real backends at these addresses. replay DIRECTORY TICKS TRACE: ticks of two backends whose
files and answers come from a recorded trace, again and again. Prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from moetuned.daemon.app import App, Paths
from moetuned.daemon.config_loading import load_checked
from moetuned.daemon.loop import Loop
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.malloc_arenas import use_one_arena
from moetuned.host.processes import ProcessIdentity
from moetuned.host.service_notify import ServiceNotifier
from moetuned.parse.process import parse_process
from moetuned.schema.sample import BackendIdentity, RawBackend, RawSample
from moetuned.state.trace import read_trace

LIMIT_SECONDS = 120.0
LARGER_THAN_CACHES = 64 << 20
SETTLE_TICKS = 90
COLD_TICKS = 300
SCRAPE_TICKS = 15


class Clock:
    """Moved by this program."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_800_000_000.0 + self.now


class Rig:
    """The whole daemon; nobody listens to it but this program."""

    def __init__(
        self,
        directory: Path,
        backends: list[dict[str, Any]],
        more: dict[str, Any] | None = None,
        before_start: Callable[[Rig], None] = lambda _rig: None,
    ) -> None:
        config = directory / "moetuned.json.yaml"
        # Of the same length as a second, so that each tick is one of a busy hour.
        watch = {"discover": False, "idle_interval": "1s"}
        config.write_text(json.dumps({"api": {"listen": False}, "watch": watch, "backends": backends, **(more or {})}))
        state, run = directory / "state", directory / "run"
        state.mkdir(exist_ok=True)
        run.mkdir(exist_ok=True)
        self.clock = Clock()
        self.loop = Loop(self.clock)
        paths = Paths(str(config), str(state / "undo.jsonl"), str(run / "backends"), str(run / "api.sock"))
        self.app = App(load_checked(str(config)), paths, self.clock, self.loop, ServiceNotifier({}))
        before_start(self)
        self.app.start()

    def tick(self) -> None:
        """One tick, and what it asked of the backends is waited for, as a second would."""
        self.clock.now += 1.0
        self.loop.run_once(0)
        workers, until = self.app._workers, time.monotonic() + LIMIT_SECONDS
        while workers.waiting("probe"):  # type: ignore[arg-type]
            if time.monotonic() > until:
                raise TimeoutError("a backend does not answer")
            select.select([workers.fileno()], [], [], 1.0)
            workers.collect()

    def scrape(self) -> None:
        """As Prometheus does; as in the daemon, the first one imports what it needs."""
        from moetuned.api.metrics import render

        assert self.app.snapshot is not None
        render(self.app.snapshot)


def lane_seconds() -> float:
    """CPU time of this process's other threads, to the nanosecond."""
    tasks = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    return sum(int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0]) for task in tasks) / 1e9


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hour(directory: Path, ticks: int, urls: Sequence[str]) -> dict[str, Any]:
    rig = Rig(directory, [{"name": f"b{number}", "url": url} for number, url in enumerate(urls)])
    until = time.monotonic() + LIMIT_SECONDS
    while not _seen(rig):
        if time.monotonic() > until:
            raise TimeoutError(f"not seen: {rig.app.snapshot}")
        rig.tick()
        time.sleep(0.02)
    for _ in range(SETTLE_TICKS):
        rig.tick()
    gc.collect()
    gc.freeze()
    loops, lanes = [], []
    for _ in range(ticks):
        began, began_lanes = time.thread_time(), lane_seconds()
        rig.tick()
        loops.append(time.thread_time() - began)
        lanes.append(lane_seconds() - began_lanes)
    rss, cold_loops, cold_lanes = rss_bytes(), [], []
    for _ in range(ticks // SCRAPE_TICKS):
        rig.tick()
        rig.scrape()
    scraped = rss_bytes()
    # After a second in which a backend computed nothing of the daemon is left in the CPU's caches.
    junk, other = bytearray(LARGER_THAN_CACHES), bytes(LARGER_THAN_CACHES)
    for _ in range(min(ticks, COLD_TICKS)):
        junk[:] = other
        began, began_lanes = time.thread_time(), lane_seconds()
        rig.tick()
        cold_loops.append(time.thread_time() - began)
        cold_lanes.append(lane_seconds() - began_lanes)
    phases = [str(view.verdict.phase) for view in rig.app.snapshot.backends] if rig.app.snapshot else []
    rig.app.close()
    return {
        "loop": median(loops), "lanes": median(lanes), "mean": (sum(loops) + sum(lanes)) / len(loops), "rss": rss, "scraped": scraped,
        "cold_loop": median(cold_loops), "cold_lanes": median(cold_lanes), "phases": phases,
    }  # fmt: skip


def _seen(rig: Rig) -> bool:
    snapshot = rig.app.snapshot
    return snapshot is not None and all(
        view.pid is not None and view.verdict.phase in ("idle", "prefill", "decode") for view in snapshot.backends
    )


class Replayer:
    """Stands for the sampler: the seconds of a trace, again and again, for every backend."""

    def __init__(self, clock: Clock, samples: list[RawSample]) -> None:
        self._clock = clock
        self._samples = samples
        self._next = 0
        self.errors: dict[str, int] = {}

    def read(self, identities: Sequence[BackendIdentity], _backends: dict[str, RawBackend]) -> RawSample:
        sample = self._samples[self._next % len(self._samples)]
        self._next += 1
        own = next(iter(sample.backends.values()))
        # Other text each time, as a real read gives: nothing is the same object as before.
        files = {path: None if text is None else text[:1] + text[1:] for path, text in sample.files.items()}
        return RawSample(self._clock.now, self._clock.wall(), files, {one.name: own for one in identities})

    def close(self) -> None:
        pass


def replay(directory: Path, ticks: int, path: str) -> dict[str, Any]:
    trace = read_trace(path)
    samples = list(trace.samples)
    rig = Rig(directory, [{"name": name} for name in ("one", "two")])
    # The processes of a trace run nowhere: nobody may look for them here.
    rig.app._roster.discover = rig.app._roster._forget_if_ended = lambda *_args: None  # type: ignore[method-assign,assignment]
    rig.app._judge._sampler = Replayer(rig.clock, samples)  # type: ignore[assignment]
    pid = trace.identity.pid
    stat = parse_process(pid or 0, samples[0].files.get(f"/proc/{pid}/stat"), None, None)
    assert pid is not None
    assert stat is not None
    assert stat.start_ticks is not None
    for watched in rig.app._roster:
        watched.process = ProcessIdentity(pid, stat.start_ticks)
        watched.cgroup = MemoryCgroup(trace.identity.cgroup_directory, trace.identity.cgroup_version)
        watched.next_cgroup = watched.next_residency = float("inf")
        watched.disks = trace.identity.disks
        watched.sample = None  # the one of the first tick was of no process
    seen: list[tuple[int, int]] = []
    paging: set[str] = set()
    for number in range(ticks):
        rig.tick()
        assert rig.app.snapshot is not None
        paging |= {str(view.verdict.paging) for view in rig.app.snapshot.backends}
        if number % SCRAPE_TICKS == 0:
            rig.scrape()
        if number in (ticks // 10, ticks - 1):
            gc.collect()
            seen.append((rss_bytes(), len(gc.get_objects())))
    rig.app.close()
    return {"rss": [one[0] for one in seen], "objects": [one[1] for one in seen], "paging": sorted(paging)}


if __name__ == "__main__":
    use_one_arena()  # as the daemon does
    what, directory, ticks, *rest = sys.argv[1:]
    if what == "hour":
        found = hour(Path(directory), int(ticks), rest)
    else:
        found = replay(Path(directory), int(ticks), rest[0])
    print(json.dumps(found))
