"""The daemon's own code for hours of a clock that this program moves: recorded traces one after the other, relief that acts, and restarts.

soak_day.py DIRECTORY TICKS: a supervised backend whose processes are made up and whose files and answers come from traces. Prints one JSON object: what the daemon holds after the warm-up and at the end, and what it did meanwhile.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from daemon_fakes import FakeProcess, FakeSpawn
from soak_growth import most
from tick_hour import Clock, Rig, rss_bytes

from moetuned.daemon import process_supervisor, recorded
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.malloc_arenas import use_one_arena
from moetuned.host.processes import ProcessIdentity
from moetuned.parse.process import parse_process
from moetuned.schema.sample import BackendIdentity, RawBackend, RawSample
from moetuned.simulator.make_model import main as make_model
from moetuned.state.trace import Trace, read_trace

TRACES = (
    "anon_hog",
    "prompt_cache",
    "squeeze_small_read_ahead",
    "hog_slow",
    "two_slots_thrash",
    "hog_parent",
    "leak_slow_oom",
)
"""Memory that runs out in four ways, a thrash in two."""
LIFE_TICKS = 240
"""A process lives this long at least: one that ends more often is left stopped."""
WARM_UP_SHARE, WINDOW_SHARE = 0.25, 0.25
LOOK_TICKS = 60
SCRAPE_TICKS = 15


class Played:
    """A trace with the process that it is of."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.samples = list(trace.samples)
        pid = trace.identity.pid
        assert pid is not None
        stat = parse_process(pid, self.samples[0].files.get(f"/proc/{pid}/stat"), None, None)
        assert stat is not None
        assert stat.start_ticks is not None
        self.identity = ProcessIdentity(pid, stat.start_ticks)


class Players:
    """Stands for the sampler and for host.spawn: which trace is played, and processes of it that end when they are told to."""

    def __init__(self, traces: Sequence[Played], clock: Clock) -> None:
        self._clock = clock
        self._next = self._seconds(traces)
        self.played = traces[0]
        self.alive: list[FakeProcess] = []
        self.errors: dict[str, int] = {}
        self.generation = 0
        """Every process has a start time of its own, or a restart would be none."""
        self.spawn = FakeSpawn()
        self._start = self.spawn.start
        self.spawn.start = self.start  # type: ignore[method-assign]

    def _seconds(self, traces: Sequence[Played]) -> Iterator[tuple[Played, RawSample]]:
        for played in itertools.cycle(traces):
            for _ in range(-(-LIFE_TICKS // len(played.samples))):
                for sample in played.samples:
                    yield played, sample

    def start(self, argv: list[str], **options: Any) -> FakeProcess:
        process = self._start(argv, **options)
        self.spawn.started.clear()
        self.spawn.options.clear()
        self.generation += 1
        process.identity = ProcessIdentity(self.played.identity.pid, self._start_ticks)
        process.terminate = lambda: self._end(process, 0)  # type: ignore[method-assign]
        self.alive.append(process)
        return process

    @property
    def _start_ticks(self) -> int:
        return self.played.identity.start_ticks + self.generation

    def _end(self, process: FakeProcess, code: int) -> None:
        if process in self.alive:
            self.alive.remove(process)
            process.end(code)

    def read(self, identities: Sequence[BackendIdentity], _backends: dict[str, RawBackend]) -> RawSample:
        before = self.played
        self.played, sample = next(self._next)
        if self.played is not before:
            for process in list(self.alive):
                self._end(process, 1)
        own = next(iter(sample.backends.values()))
        # Other text each time, as a real read gives.
        files = {path: None if text is None else text[:1] + text[1:] for path, text in sample.files.items()}
        path = f"/proc/{self.played.identity.pid}/stat"
        if (text := files.get(path)) is not None:
            files[path] = text.replace(f" {self.played.identity.start_ticks} ", f" {self._start_ticks} ", 1)
        return RawSample(self._clock.now, self._clock.wall(), files, {one.name: own for one in identities})

    def close(self) -> None:
        for process in list(self.alive):
            process.close()


def entry(name: str, model: Path) -> dict[str, Any]:
    """A backend that relief may restart. Nobody listens at its address."""
    command = ["llama-server", "-m", "{model}", "-c", "{context}", "--cache-ram", "{prompt_cache_mib}"]
    return {
        "name": name, "kind": "llama-server", "model": str(model), "url": "http://127.0.0.1:9", "prompt_cache_mib": 2048,
        "context": {"preferred": 32768, "minimum": 2048}, "supervise": {"by": "process", "command": command},
    }  # fmt: skip


def soak(directory: Path, ticks: int) -> dict[str, Any]:
    traces = [
        Played(read_trace(str(Path(__file__).parents[1] / "data" / "traces" / f"{name}.jsonl.gz"))) for name in TRACES
    ]
    model = directory / "model.gguf"
    assert make_model([str(model), "--size", "40M"]) == 0
    players: list[Players] = []

    def before_start(rig: Rig) -> None:
        players.append(Players(traces, rig.clock))
        recorded.spawn = process_supervisor.spawn = players[0].spawn  # type: ignore[assignment]
        rig.app._judge._sampler = players[0]  # type: ignore[assignment]
        rig.app._roster.discover = lambda *_: None  # type: ignore[method-assign]
        rig.app._roster._forget_if_ended = lambda *_: None  # type: ignore[method-assign]

    config = {"relief": {"mode": "act", "at_most": "999/h", "before_start": "off"}, "warm": {"enabled": False}}
    rig = Rig(directory, [entry("one", model)], config, before_start)
    after_warm_up: list[dict[str, int]] = []
    at_the_end: list[dict[str, int]] = []
    events: Counter[str] = Counter()
    known: set[str] = set()
    restarts = 0
    for number in range(ticks):
        for watched in rig.app._roster:
            identity = players[0].played.trace.identity
            # The processes of a trace run nowhere: nobody may look for them here.
            watched.cgroup = MemoryCgroup(identity.cgroup_directory, identity.cgroup_version)
            watched.next_cgroup = watched.next_residency = float("inf")
            watched.disks = identity.disks
        rig.tick()
        assert rig.app.snapshot is not None
        for event in rig.app.snapshot.events:
            events[event.name.value] += event.id not in known
        known = {event.id for event in rig.app.snapshot.events}
        restarts = sum(view.restarts for view in rig.app.snapshot.backends)
        if number % SCRAPE_TICKS == 0:
            rig.scrape()
        if number % LOOK_TICKS == 0:
            if WARM_UP_SHARE <= number / ticks < WARM_UP_SHARE + WINDOW_SHARE:
                after_warm_up.append(holds())
            elif number / ticks >= 1 - WINDOW_SHARE:
                at_the_end.append(holds())
    rig.app.close()
    players[0].close()
    return {
        "after_warm_up": most(after_warm_up), "at_the_end": most(at_the_end), "events": dict(events), "restarts": restarts,
    }  # fmt: skip


def holds() -> dict[str, int]:
    """What this process holds now. What is free and only not yet given back to the kernel is no leak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return {
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "rss": rss_bytes(),
        "objects": len(gc.get_objects()),
    }


if __name__ == "__main__":
    use_one_arena()  # as the daemon does
    print(json.dumps(soak(Path(sys.argv[1]), int(sys.argv[2]))))
