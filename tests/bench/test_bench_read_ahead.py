"""What a real llama.cpp reads for the same tokens, and how fast, at a large read-ahead and at the computed one.

On a loop device of the bench's own; before, after (more often, it is quick), before, so that what else runs hits both.
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path

import pytest
from fakes.loop_mount import loop_mount
from fakes.own_cgroup import own_cgroup
from fakes.server_process import started
from measuring import Figure, completion, drop, is_healthy, make_model, middle, read_bytes

from moetuned import tunables
from moetuned.host.cgroup import add_process
from moetuned.host.fs import RealFS
from moetuned.host.tuning_targets import model_target
from moetuned.schema.config import Profile
from moetuned.schema.tunable import Targets
from moetuned.simulator.topics import prompt_for_topic

pytestmark = [pytest.mark.bench, pytest.mark.kernel, pytest.mark.timeout(1800)]
IMAGE_BYTES = 1100 << 20
MODEL = "900M"
LIMIT_BYTES = 500 << 20
"""The model is 1.8 times as large."""
TOKENS = 16
LARGE_KIB = 8192
"""What volume managers and tuners for throughput set; also the read-ahead of the disk that this was first seen on."""
READS_LESS, RUNS_FASTER = 5.0, 3.0
"""What the computed value must give, each in times."""


def set_read_ahead(path: Path, kib: int) -> None:
    """The device is the bench's own, so nothing is to be put back."""
    number = path.stat().st_dev
    Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb").write_text(str(kib))


def computed_kib(model: Path) -> int:
    """What a profile wants for the device under the model."""
    (spec,) = tunables.instances(RealFS(), tunables.load("read_ahead_kb"), Targets((model_target(str(model)),)))
    return int(spec.wanted[Profile.MOE_OFFLOAD.value])


def generate(model: Path, kib: int) -> tuple[int, float]:
    """Bytes read and seconds while it generates, the model opened after the read-ahead is set.

    With one thread: several wait for each other by spinning, so that anything else that runs slows them tenfold.
    """
    set_read_ahead(model, kib)
    drop(model)
    flags = ("-m", str(model), "-c", "1024", "-np", "1", "-t", "1", "--no-repack", "--cache-ram", "0", "--no-warmup")
    with own_cgroup(LIMIT_BYTES) as group, started("moetuned.xllamacpp_server", *flags, "--port", "18473") as server:
        add_process(group, server.process.pid)
        url = "http://127.0.0.1:18473"
        while not is_healthy(url):
            assert server.process.poll() is None, "it ended"
            time.sleep(0.2)
        completion(url, prompt_for_topic(0, 16, 1), TOKENS)
        before = read_bytes(server.process.pid)
        answer = completion(url, prompt_for_topic(1, 16, 2), TOKENS)
        read = read_bytes(server.process.pid) - before
        server.process.kill()
        server.process.wait()
        return read, answer["timings"]["predicted_ms"] / 1e3


def test_read_ahead(on_disk: Path, figure: Figure) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for a loop device")
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs the wheel xllamacpp")
    with loop_mount(on_disk, IMAGE_BYTES) as mounted:
        model = make_model(mounted / "model.gguf", MODEL)
        set_read_ahead(model, LARGE_KIB)
        small = computed_kib(model)
        found: dict[int, list[tuple[int, float]]] = {LARGE_KIB: [], small: []}
        for kib in (LARGE_KIB, small, small, small, small, LARGE_KIB):
            found[kib].append(generate(model, kib))
    read = {kib: middle(bytes_read for bytes_read, _ in runs) for kib, runs in found.items()}
    speed = {kib: TOKENS / middle(seconds for _, seconds in runs) for kib, runs in found.items()}
    figure("computed read-ahead", small, "KiB")
    for kib in found:
        figure(f"read for {TOKENS} tokens at read-ahead {kib} KiB", read[kib] / 1e6, "MB")
        figure(f"tokens a second at read-ahead {kib} KiB", speed[kib], "tok/s")
    less, faster = read[LARGE_KIB] / max(1.0, read[small]), speed[small] / speed[LARGE_KIB]
    figure("the computed read-ahead reads less by", less, "times")
    figure("the computed read-ahead is faster by", faster, "times")
    assert less >= READS_LESS
    assert faster >= RUNS_FASTER
