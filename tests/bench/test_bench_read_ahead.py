"""Bytes a real llama.cpp reads for the same tokens at two read-ahead values, on a loop device of the bench's own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.own_cgroup import own_cgroup
from fakes.server_process import started
from measuring import Figure, completion, drop, is_healthy, make_model, read_bytes

from moetuned.host.cgroup import add_process
from moetuned.simulator.topics import prompt_for_topic

pytestmark = [pytest.mark.bench, pytest.mark.kernel, pytest.mark.timeout(900)]
IMAGE_BYTES = 1100 << 20
MODEL = "900M"
LIMIT_BYTES = 560 << 20
"""About half of the model besides the process's own memory."""
TOKENS = 24
VALUES_KIB = (128, 4096)


@contextlib.contextmanager
def loop_mount(directory: Path) -> Iterator[Path]:
    """An ext4 file system in a file, mounted; gone afterwards."""
    image, point = directory / "image", directory / "mounted"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    with contextlib.ExitStack() as stack:
        stack.callback(image.unlink)
        found = subprocess.run(
            ["losetup", "--direct-io=on", "--find", "--show", str(image)], capture_output=True, text=True, check=False
        )
        if found.returncode != 0:
            pytest.skip(f"no loop device: {found.stderr.strip()}")
        device = found.stdout.strip()
        stack.callback(subprocess.run, ["losetup", "--detach", device], check=True)
        subprocess.run(["mount", device, str(point)], check=True)
        stack.callback(subprocess.run, ["umount", str(point)], check=True)
        yield point


def set_read_ahead(path: Path, kib: int) -> None:
    """The device is the bench's own, so nothing is to be put back."""
    number = path.stat().st_dev
    Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb").write_text(str(kib))


def read_for_tokens(model: Path, kib: int) -> int:
    """Bytes read while it generates; the model is opened after the read-ahead is set. Speed depends on what else runs."""
    set_read_ahead(model, kib)
    drop(model)
    flags = ("-m", str(model), "-c", "1024", "-np", "1", "-t", "2", "--no-repack", "--cache-ram", "0", "--no-warmup")
    with own_cgroup(LIMIT_BYTES) as group, started("moetuned.xllamacpp_server", *flags, "--port", "18473") as server:
        add_process(group, server.process.pid)
        url = "http://127.0.0.1:18473"
        while not is_healthy(url):
            assert server.process.poll() is None, "it ended"
            time.sleep(0.2)
        completion(url, prompt_for_topic(0, 16, 1), TOKENS)
        before = read_bytes(server.process.pid)
        completion(url, prompt_for_topic(1, 16, 2), TOKENS)
        read = read_bytes(server.process.pid) - before
        server.process.kill()
        server.process.wait()
        return read


def test_read_ahead(on_disk: Path, figure: Figure) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for a loop device")
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs the wheel xllamacpp")
    with loop_mount(on_disk) as mounted:
        model = make_model(mounted / "model.gguf", MODEL)
        found = {kib: read_for_tokens(model, kib) for kib in VALUES_KIB}
    small, large = (found[kib] for kib in VALUES_KIB)
    for kib, read in found.items():
        figure(f"read for {TOKENS} tokens at read-ahead {kib} KiB", read / 1e6, "MB")
    figure("the large read-ahead reads", large / max(1, small), "times as much")
    assert large > small
