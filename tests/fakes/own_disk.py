"""A disk of the test's own, so that no disk of the machine is touched: a loop device with a small file system.

What it stands on is in memory: the disks under a file are looked for below a loop device's file too, and would be the machine's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moetuned.host.block_devices import under_file

_ADD, _REMOVE = 0x4C80, 0x4C81  # include/uapi/linux/loop.h
_NUMBERS = range(100, 200)


@contextlib.contextmanager
def mounted_loop_device(directory: Path, disk_bytes: int = 4 << 20) -> Iterator[tuple[str, Path]]:
    """The device's name and a file on it, of which the test may make what it wants. The device is new and is removed again, and whatever its settings became with it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it sets up a loop device")
    memory, point = directory / "memory", directory / "mounted"
    memory.mkdir()
    point.mkdir()
    image = memory / "disk.img"
    with contextlib.ExitStack() as stack:
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={2 * disk_bytes}", "moetuned-test", str(memory))
            stack.callback(_run, "umount", str(memory))
            with open(image, "wb") as file:
                file.truncate(disk_bytes)
            _run("mkfs.ext2", "-q", "-F", str(image))
            name = stack.enter_context(_new_device())
            _run("losetup", f"/dev/{name}", str(image))
            stack.callback(_run, "losetup", "--detach", f"/dev/{name}")
            _run("mount", f"/dev/{name}", str(point))
            stack.callback(_run, "umount", str(point))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no loop device to be had here: {error}")
        (point / "model.gguf").write_bytes(b"GGUF")
        found = under_file(str(point / "model.gguf")).names
        assert found == (name,), f"the test would touch {found}"
        yield name, point / "model.gguf"


@contextlib.contextmanager
def _new_device() -> Iterator[str]:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for number in _NUMBERS:
            with contextlib.suppress(FileExistsError):
                fcntl.ioctl(control, _ADD, number)
                break
        else:
            raise FileNotFoundError(errno.ENOENT, "no loop device is free")
        node = f"/dev/loop{number}"
        made = not os.path.exists(node)  # /dev is no devtmpfs here
        try:
            if made:
                major, minor = Path(f"/sys/block/loop{number}/dev").read_text().split(":")
                os.mknod(node, 0o600 | stat.S_IFBLK, os.makedev(int(major), int(minor)))
            yield f"loop{number}"
        finally:
            _remove(control, number)
            if made:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(node)
    finally:
        os.close(control)


def _remove(control: int, number: int) -> None:
    """Whoever looks at new devices (udev) may have it open for a moment."""
    for _ in range(200):
        try:
            fcntl.ioctl(control, _REMOVE, number)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(errno.ETIMEDOUT, f"loop{number} stays busy")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
