"""Warming a cold file against the other ways to read it, in turn; and what it costs a request that runs meanwhile."""

from __future__ import annotations

import importlib.util
import json
import resource
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from fakes.loop_mount import loop_mount
from fakes.own_cgroup import own_cgroup
from fakes.server_process import started
from measuring import Figure, completion, cpu_seconds, drop, is_healthy, make_model, middle, read_bytes

from moetuned.host.block_devices import under_file
from moetuned.host.cgroup import add_process
from moetuned.host.processes import identify
from moetuned.host.warming import Warming, WarmProgress, warm_in_cgroup
from moetuned.schema.model import ByteRange
from moetuned.simulator.topics import prompt_for_topic

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
MIB = 1 << 20
SIZE = 1024 * MIB
READ_AHEAD_KIB = 128
"""The kernel's default for a disk, and about what the profiles set."""
PAIRS = 5
FASTER_THAN_VMTOUCH, OF_THE_BEST = 3.0, 0.9
"""What warming a whole file must give, in times of `vmtouch -t` and of the faster of fio and cat.

No disk gives more than it has: where vmtouch alone takes more than a third of that, warming must reach most of what many readers get.
"""
READERS = 8

MODEL, LIMIT_BYTES = "600M", 5 << 30
OTHER_PART_BYTES = 3 << 30
"""So much that warming goes on for as long as the request does."""
TOKENS = 64
REQUEST_PAIRS = 15
"""A request takes under a second, and what else runs moves it by more than what is looked for."""
SLOWER_AT_MOST = 1.05


def seen_through(warming: Warming) -> WarmProgress:
    while (progress := warming.advance()).going_on:
        select.select([warming.fileno()], [], [], 30)
    return progress


def warmed(path: Path) -> float:
    """With the start of its process."""
    begun = time.perf_counter()
    progress = seen_through(warm_in_cgroup((str(path),), (ByteRange(0, 0, SIZE),)))
    assert progress.state == "done", progress.error
    return time.perf_counter() - begun


def ran(*command: str) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def read_by_fio(path: Path, readers: int = 1) -> float:
    """By its own clock: it takes long to start. Each reader has its own part of the file."""
    part = SIZE // readers
    flags = (
        "--name=cold", "--rw=read", "--bs=1M", "--direct=0", "--readonly", "--output-format=json", "--thread", "--group_reporting",
        f"--numjobs={readers}", f"--size={part}", f"--offset_increment={part}", "--invalidate=0",
    )  # fmt: skip
    done = subprocess.run(["fio", *flags, f"--filename={path}"], check=True, capture_output=True)
    return float(json.loads(done.stdout)["jobs"][0]["read"]["runtime"]) / 1e3


def child_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_warming_a_whole_cold_file(on_disk: Path, figure: Figure) -> None:
    with loop_mount(on_disk, SIZE + 128 * MIB, READ_AHEAD_KIB) as mounted:
        path = Path(make_cold_file(mounted / "file", SIZE))
        ways: dict[str, Callable[[], float]] = {"cat": lambda: ran("cat", str(path)), "warming": lambda: warmed(path)}
        if shutil.which("vmtouch"):
            ways["vmtouch -t"] = lambda: ran("vmtouch", "-q", "-t", str(path))
        if shutil.which("fio"):
            ways["fio --rw=read"] = lambda: read_by_fio(path)
            ways["all"] = lambda: read_by_fio(path, READERS)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        cpu: dict[str, list[float]] = {name: [] for name in ways}
        for pair in range(PAIRS):
            for name in list(ways)[:: -1 if pair % 2 else 1]:
                drop(path)
                before = child_cpu_seconds()
                seconds[name].append(ways[name]())
                cpu[name].append(child_cpu_seconds() - before)
        figure("read-ahead of the disk under all", under_file(str(path)).read_ahead_kb or 0, "KiB")
    middles = {name: middle(seconds[name]) for name in ways}
    best = min(middles[name] for name in ("cat", "fio --rw=read") if name in ways)
    figure("warming a cold file, the start of its process included", SIZE / middles["warming"] / 1e6, "MB/s")
    figure("warming a cold file of 1 GiB, CPU", middle(cpu["warming"]), "s")
    figure("cat of a cold file", SIZE / middles["cat"] / 1e6, "MB/s")
    if "fio --rw=read" in ways:
        figure("fio --rw=read of a cold file, its start not included", SIZE / middles["fio --rw=read"] / 1e6, "MB/s")
    figure("warming is faster than the faster of cat and fio by", best / middles["warming"], "times")
    assert best / middles["warming"] >= OF_THE_BEST
    if "vmtouch -t" in ways:
        faster = middles["vmtouch -t"] / middles["warming"]
        figure("vmtouch -t of a cold file", SIZE / middles["vmtouch -t"] / 1e6, "MB/s")
        figure("vmtouch -t of a cold file of 1 GiB, CPU", middle(cpu["vmtouch -t"]), "s")
        figure("warming is faster than vmtouch -t by", faster, "times")
        assert middle(cpu["warming"]) < middle(cpu["vmtouch -t"])
        if faster < FASTER_THAN_VMTOUCH and "all" in ways:
            of_all = middles["all"] / middles["warming"]
            figure(f"fio with {READERS} readers, the most this disk gives", SIZE / middles["all"] / 1e6, "MB/s")
            figure(f"that is less than {FASTER_THAN_VMTOUCH} times vmtouch; warming reaches of it", of_all, "times")
            assert of_all >= OF_THE_BEST
        else:
            assert faster >= FASTER_THAN_VMTOUCH


def test_a_request_beside_warming(on_disk: Path, figure: Figure) -> None:
    """One thread decodes, everything it needs is in memory, and another part of the model is warmed in its cgroup."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs the wheel xllamacpp")
    model = make_model(on_disk / "model.gguf", MODEL)
    other = Path(make_cold_file(on_disk / "other-part", OTHER_PART_BYTES))
    flags = ("-m", str(model), "-c", "1024", "-np", "1", "-t", "1", "--no-repack", "--cache-ram", "0", "--no-warmup")
    with own_cgroup(LIMIT_BYTES) as group, started("moetuned.xllamacpp_server", *flags, "--port", "18474") as server:
        pid = server.process.pid
        add_process(group, pid)
        url = "http://127.0.0.1:18474"
        while not is_healthy(url):
            assert server.process.poll() is None, "it ended"
            time.sleep(0.2)
        backend = identify(pid)
        paused: list[float] = []

        def decode() -> tuple[float, float]:
            """Seconds of decode alone, and of CPU for the whole request."""
            used = sum(cpu_seconds(pid))
            answer = completion(url, prompt_for_topic(1, 16, 2), TOKENS)
            return float(answer["timings"]["predicted_ms"]) / 1e3, sum(cpu_seconds(pid)) - used

        def decode_beside() -> tuple[float, float]:
            drop(other)
            warming = warm_in_cgroup(
                (str(other),), (ByteRange(0, 0, OTHER_PART_BYTES),), cgroup_directory=group, backend=backend
            )
            while warming.advance().done_bytes == 0:
                assert select.select([warming.fileno()], [], [], 30)[0]
            seconds = decode()
            progress = warming.advance()
            assert progress.going_on, "it was done before the request was"
            paused.append(float(progress.state == "paused"))
            warmed_bytes.append(progress.done_bytes)
            warming.kill()
            return seconds

        warmed_bytes: list[int] = []
        decode()
        seconds: dict[Callable[[], tuple[float, float]], list[tuple[float, float]]] = {decode: [], decode_beside: []}
        before = read_bytes(pid)
        for pair in range(REQUEST_PAIRS):
            for way in (decode, decode_beside)[:: -1 if pair % 2 else 1]:
                seconds[way].append(way())
        assert read_bytes(pid) == before
        drop(other)
        server.process.kill()
        server.process.wait()
    (alone, cpu), (beside, cpu_beside) = (
        [middle(run[column] for run in seconds[way]) for column in range(2)] for way in (decode, decode_beside)
    )
    figure(f"decode of {TOKENS} tokens alone", alone, "s")
    figure(f"decode of {TOKENS} tokens beside warming", beside, "s")
    figure("warmed meanwhile", middle(warmed_bytes) / MIB, "MiB")
    figure("pairs in which warming paused", sum(paused), "")
    figure("a request beside warming uses", cpu_beside / cpu, "times the CPU")
    figure("a request beside warming takes", beside / alone, "times as long")
    assert beside / alone < SLOWER_AT_MOST
