"""What looking costs: one read of all files of a tick, and asking a backend over HTTP, beside the standard library's client."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from measuring import Figure, make_model, stand_in

from moetuned.daemon.discovery import Finder
from moetuned.host.backend_http import Probe
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.clock import RealClock
from moetuned.host.sampler import Sampler
from moetuned.parse.assemble import assemble
from moetuned.schema.sample import BackendIdentity

pytestmark = pytest.mark.bench


def cpu_microseconds(work: Callable[[], object], count: int) -> float:
    """CPU time of this thread for one call."""
    work()
    begun = time.thread_time()
    for _ in range(count):
        work()
    return (time.thread_time() - begun) / count * 1e6


def test_sampler(figure: Figure) -> None:
    group = memory_cgroup(os.getpid())
    identities = [
        BackendIdentity(name, pid=os.getpid(), cgroup_directory=group.directory, cgroup_version=group.version)
        for name in ("one", "two")
    ]
    sampler = Sampler(RealClock())
    read = cpu_microseconds(lambda: sampler.read(identities, {}), 500)
    parse = cpu_microseconds(lambda: assemble(sampler.read(identities, {}), identities), 500) - read
    sampler.close()

    def with_psutil() -> None:
        psutil.virtual_memory(), psutil.swap_memory(), psutil.disk_io_counters()
        for _ in identities:
            process = psutil.Process()
            process.memory_info(), process.io_counters(), process.cpu_times(), process.num_ctx_switches()

    figure("sampler, CPU to read the files of two backends", read, "us")
    figure("sampler, CPU to parse them", parse, "us")
    figure("psutil, CPU for a part of the same", cpu_microseconds(with_psutil, 200), "us")
    assert read > 0


def test_discovery(figure: Figure) -> None:
    """The daemon looks every five seconds."""
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    cost = cpu_microseconds(Finder().find, 60)
    figure("looking for running backends, CPU", cost, "us")
    figure("looking for running backends, CPU a process", cost / processes, "us")


def test_probe(on_disk: Path, figure: Figure) -> None:
    model = make_model(on_disk / "model.gguf", "32M")
    with stand_in(model, "-t", "1") as (_server, url):
        probe = Probe(url, may_sleep=False)
        own = cpu_microseconds(probe.poll, 200)
        assert not [text for text in probe.poll().values() if text.startswith("!")]
        probe.close()
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=1)

        def standard() -> None:
            for path in ("/health", "/slots", "/metrics"):
                connection.request("GET", path)
                connection.getresponse().read()

        library = cpu_microseconds(standard, 200)
        connection.close()
    figure("probe, CPU to ask /health, /slots and /metrics", own, "us")
    figure("http.client, CPU for the same", library, "us")
    figure("http.client takes", library / own, "times as much")
