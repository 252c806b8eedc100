"""Benchmarks: the figures of the docs. `make bench` runs them; each figure is one line, `name: value unit`."""

from __future__ import annotations

from pathlib import Path

import pytest
from measuring import Figure

from moetuned.host.block_devices import under_file


@pytest.fixture
def figure(capsys: pytest.CaptureFixture[str]) -> Figure:
    """Print one figure, also while pytest captures what tests print."""

    def show(name: str, value: float, unit: str) -> None:
        with capsys.disabled():
            print(f"{name}: {value:.3g} {unit}" if abs(value) < 100 else f"{name}: {value:.0f} {unit}", flush=True)

    return show


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """A directory on a disk; skips where files live in memory."""
    if under_file(str(tmp_path)).filesystem in ("tmpfs", "ramfs"):
        pytest.skip(f"{tmp_path} is in memory; set TMPDIR to a directory on a disk")
    return tmp_path
