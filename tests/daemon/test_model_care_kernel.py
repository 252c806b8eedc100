"""From looks at the page cache to fewer reads: a daemon learns which experts a topic uses, and warms the next load with them.

On a real kernel, with a stand-in that maps its model in a memory cgroup it does not fit into. Figures are in tests/bench/test_bench_heat.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import running
from fakes.loop_mount import loop_mount
from fakes.own_cgroup import own_cgroup
from running import InProcess, backend, free_port, in_process

from moetuned.daemon import heat_keeper
from moetuned.daemon.heat_record import HeatRecord
from moetuned.host.page_drop import drop_pages
from moetuned.simulator.make_model import main as make_model

pytestmark = [pytest.mark.kernel, pytest.mark.backend]
MIB = 1 << 20
LIMIT_BYTES = 130 * MIB
TOPIC = 1


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    """160 MiB on a device with the kernel's usual read-ahead: with a large one every request reads a bit of everything."""
    with loop_mount(tmp_path, 200 * MIB, 128) as mounted:
        path = mounted / "model.gguf"
        assert make_model([str(path), "--size", "160M", "--layers", "6", "--used", "2"]) == 0
        yield path


@pytest.fixture
def cgroup(model: Path) -> Iterator[str]:
    with own_cgroup(LIMIT_BYTES) as directory:
        yield directory


@contextmanager
def loaded(directory: Path, model: Path, cgroup: str, *, warms: bool) -> Iterator[InProcess]:
    """From a cold cache until the backend has loaded and, where the daemon warms, is warm."""
    directory.mkdir(exist_ok=True)
    drop_pages(str(model))
    entry = backend("glm", model, free_port(), cgroup=cgroup)
    entry["context"], entry["prompt_cache_mib"] = {"preferred": 1024, "minimum": 1024}, 0
    watch = {"discover": False, "interval": "200ms"}
    relief = {"mode": "observe"}
    with in_process(
        directory, {"watch": watch, "backends": [entry], "warm": {"enabled": warms}, "relief": relief}
    ) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: daemon.view("glm").cgroup == cgroup, "its cgroup is known")
        if warms:
            daemon.until(lambda _: daemon.view("glm").warm.state == "done", "warm")
        yield daemon
        daemon.stop()


def ask(daemon: InProcess, seed: int, requests: int = 2, tokens: int = 12) -> None:
    """Requests of the topic; another seed makes other ones."""
    url = daemon.view("glm").url
    command = [sys.executable, "-m", "moetuned.simulator", "ask", url, "--topic", str(TOPIC), "--seed", str(seed)]
    command += ["-n", str(requests), "--tokens", str(tokens), "--prompt-tokens", str(tokens)]
    asking = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    daemon.until(lambda _: asking.poll() is not None, "they are answered")
    assert asking.returncode == 0


def read_bytes(daemon: InProcess, seed: int) -> int:
    """What the backend reads from the disk for a short request."""
    pid = daemon.view("glm").pid

    def so_far() -> int:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))

    before = so_far()
    ask(daemon, seed, requests=1, tokens=8)
    return so_far() - before


def record_of(daemon: InProcess) -> HeatRecord:
    record = daemon.app._roster.get("glm").heat
    assert record is not None
    return record


def looked_again(daemon: InProcess) -> None:
    """What came in before a look that is the first after a page-out is not known to be used."""
    seen = record_of(daemon).pages
    daemon.until(lambda _: record_of(daemon).pages is not seen, "it looked again")


def used(daemon: InProcess) -> int:
    """How many experts are known to have been used."""
    return sum(last > 0 for last in record_of(daemon).state.heat.last_used)


def learn(daemon: InProcess) -> None:
    """Requests until those that use experts of the topic bring in no more that are new."""
    news = -1
    for seed in range(10, 18):
        known = used(daemon)
        ask(daemon, seed)
        looked_again(daemon)
        before, news = news, used(daemon) - known
        if known and 0 <= before + news <= 2:
            return


def test_a_topic_that_was_learned_is_read_before_it_is_asked_for(
    tmp_path: Path, model: Path, cgroup: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LIMIT_SECONDS", 150.0)
    # Minutes of a day in seconds of a test: how long is idle, and how often it looks.
    monkeypatch.setattr(heat_keeper, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr(heat_keeper, "CHEAP_CPU_SECONDS", 10.0)
    monkeypatch.setattr(heat_keeper, "seconds_between", lambda _cpu_seconds: 1.0)
    with loaded(tmp_path / "not-warmed", model, cgroup, warms=False) as daemon:
        not_warmed = read_bytes(daemon, seed=1)
    with loaded(tmp_path / "warmed", model, cgroup, warms=True) as daemon:
        ask(daemon, seed=2)
        daemon.until(lambda _: record_of(daemon).state.paged_out, "what nobody may use is paged out when idle")
        looked_again(daemon)
        learn(daemon)
        assert 0 < used(daemon) < 0.7 * len(record_of(daemon).state.heat.last_used)
    assert list((tmp_path / "warmed" / "state" / "heat").iterdir())
    with loaded(tmp_path / "warmed", model, cgroup, warms=True) as daemon:
        assert "of experts that were used" in daemon.view("glm").warm.detail
        by_heat = read_bytes(daemon, seed=1)
    print(f"read by the first request: {not_warmed / 1e6:.1f} MB not warmed, {by_heat / 1e6:.1f} MB warmed with heat")
    assert not_warmed > 0
    assert by_heat <= not_warmed / 2
