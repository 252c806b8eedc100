"""Files that are on a disk and not in the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.block_devices import under_file

MIB = 1 << 20


def make_cold_file(path: Path, size: int) -> str:
    """Write `size` random bytes and drop them from the page cache; skips the test where files live in memory."""
    if under_file(str(path.parent)).filesystem in ("tmpfs", "ramfs"):
        pytest.skip(f"{path.parent} is in memory; set TMPDIR to a directory on a disk")
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(block)
        file.write(block[: size % MIB])
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return str(path)
