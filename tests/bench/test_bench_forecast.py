"""Does the forecast of `moetunectl estimate --measure` hold what a real llama.cpp does? Nine cases, none tuned for.

Three made models (other numbers and sizes of experts) at three memory limits each, in memory cgroups of the bench's own, on a
loop device of its own with the kernel's usual read-ahead. LLAMA_SERVER names a llama-server; else the wheel's is used.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes.loop_mount import loop_mount
from fakes.own_cgroup import own_cgroup
from measuring import Figure, completion, drop, is_healthy, middle, read_bytes
from test_bench_read_ahead import IMAGE_BYTES, set_read_ahead

from moetuned.host.cgroup import joining
from moetuned.host.model_files import read_model
from moetuned.simulator.topics import prompt_for_topic

pytestmark = [pytest.mark.bench, pytest.mark.kernel, pytest.mark.timeout(1800)]
READ_AHEAD_KIB = 128
PORT = 18477
WARM_TOKENS, TOKENS, TOPICS = 64, 48, (1, 2, 3)
CONTEXT = 1024
OVERHEAD_BYTES = 220 << 20
MODELS = {
    "many small experts": ("--layers", "12", "--experts", "64", "--used", "8", "--ff", "512"),
    "the usual": ("--size", "900M"),
    "few large experts": ("--layers", "6", "--experts", "32", "--used", "4", "--embd", "2048", "--ff", "1408"),
}
SHARES = (0.3, 0.5, 0.75)
ALONE = ("nice", "-n", "-20")
"""Whatever else the machine does at the time is not what is forecast."""


class Case(NamedTuple):
    """What was forecast and what was measured, tokens a second."""

    low: float
    high: float
    measured: float
    ratio_low: float
    ratio_high: float
    forecast_bytes: tuple[int, int]
    measured_bytes: float


def make(path: Path, arguments: tuple[str, ...]) -> Path:
    subprocess.run(
        [sys.executable, "-m", "moetuned.simulator", "make-model", str(path), *arguments],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    drop(path)
    return path


def run_case(model: Path, share: float) -> Case:
    """One model with memory for `share` of its experts."""
    layout = read_model(str(model)).identity.layout
    limit = OVERHEAD_BYTES + layout.other_bytes + int(layout.expert_bytes * share)
    drop(model)
    with own_cgroup(limit) as group:
        found = estimate(group, model)
    drop(model)
    with own_cgroup(limit) as group:
        speed, read = serve(group, model)
    cast = found["forecast"]
    return Case(
        cast["tokens_per_second_low"],
        cast["tokens_per_second_high"],
        speed,
        found["ledger"]["ratio_low"],
        found["ledger"]["ratio_high"],
        (cast["disk_bytes_per_token"]["low_bytes"], cast["disk_bytes_per_token"]["high_bytes"]),
        read,
    )


def estimate(group: str, model: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-c",
        "import sys; from moetuned.cli.main import run; sys.exit(run(sys.argv[1:]))",
        "estimate",
    ]
    command += [str(model), "--context", str(CONTEXT), "--cache-ram", "0", "--measure", "--json"]
    done = subprocess.run(joining(group, [*ALONE, *command]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def serve(group: str, model: Path) -> tuple[float, float]:
    """Tokens a second of a warm server, and bytes read for each of them."""
    program = (
        [os.environ["LLAMA_SERVER"]]
        if "LLAMA_SERVER" in os.environ
        else [sys.executable, "-m", "moetuned.xllamacpp_server"]
    )
    command = [
        *program,
        "-m",
        str(model),
        "-c",
        str(CONTEXT),
        "-np",
        "1",
        "-t",
        str(os.cpu_count() or 1),
        "--no-repack",
    ]
    command += ["--cache-ram", "0", "--no-warmup", "--port", str(PORT)]
    server = subprocess.Popen(joining(group, [*ALONE, *command]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{PORT}"
        while not is_healthy(url):
            assert server.poll() is None, "it ended"
            time.sleep(0.2)
        completion(url, prompt_for_topic(0, 16, 1), WARM_TOKENS)
        before = read_bytes(server.pid)
        answers = [completion(url, prompt_for_topic(topic, 8, 2), TOKENS) for topic in TOPICS]
        read = (read_bytes(server.pid) - before) / (len(TOPICS) * (TOKENS + 8))
        return middle(float(answer["timings"]["predicted_per_second"]) for answer in answers), read
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("name", MODELS)
def test_forecast_holds(name: str, on_disk: Path, figure: Figure) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for a loop device")
    if "LLAMA_SERVER" not in os.environ and importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs a llama-server in LLAMA_SERVER, or the wheel xllamacpp")
    outside = []
    with loop_mount(on_disk, IMAGE_BYTES) as mounted:
        set_read_ahead(mounted, READ_AHEAD_KIB)
        model = make(mounted / "model.gguf", MODELS[name])
        for share in SHARES:
            case = run_case(model, share)
            about = f"{name}, {case.ratio_low * 100:.0f}-{case.ratio_high * 100:.0f} % of the experts fit"
            figure(f"{about}: forecast from", case.low, "tokens/s")
            figure(f"{about}: forecast to", case.high, "tokens/s")
            figure(f"{about}: measured", case.measured, "tokens/s")
            figure(f"{about}: read a token", case.measured_bytes / 1e6, "MB")
            if not case.low <= case.measured <= case.high:
                outside.append((about, case))
    assert not outside
