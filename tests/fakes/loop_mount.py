"""A file system in a file, mounted through a loop device of the test's own: with its own read-ahead, whatever the machine's disk has."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def loop_mount(directory: Path, image_bytes: int, read_ahead_kib: int | None = None) -> Iterator[Path]:
    """An ext4 file system in a file, mounted; gone afterwards. `read_ahead_kib`: the device's, None as the kernel sets it.

    What this machine sets for its own disk is no matter there.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root for a loop device")
    image, point = directory / "image", directory / "mounted"
    with image.open("wb") as file:
        file.truncate(image_bytes)
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
        if read_ahead_kib is not None:
            Path(f"/sys/block/{Path(device).name}/queue/read_ahead_kb").write_text(str(read_ahead_kib))
        subprocess.run(["mount", device, str(point)], check=True)
        stack.callback(subprocess.run, ["umount", str(point)], check=True)
        yield point
