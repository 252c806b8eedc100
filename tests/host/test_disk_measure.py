from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file

from moetuned.host import disk_measure, slice_faults
from moetuned.host.block_devices import under_file
from moetuned.host.disk_measure import MeasureError, measure_slices
from moetuned.host.page_cache import resident_pages
from moetuned.schema.model import ByteRange

KIB, MIB = 1 << 10, 1 << 20
SLICE = 256 * KIB
FILE = 96 * MIB
SLICES = tuple(ByteRange(0, index * SLICE + 100, SLICE) for index in range(FILE // SLICE - 1))


def measure(path: str, slices=SLICES, **more):
    window = 2 * (under_file(path).read_ahead_kb or 128) << 10
    if window > MIB:
        pytest.skip(f"the read-ahead of the disk under {path} is too large for so small a file")
    arguments = {"window_bytes": window, "threads": 2, "filesystem": "ext4", "seconds": 2.0, "seed": 3} | more
    return measure_slices((path,), slices, **arguments)


def test_a_cold_file_has_a_rate_and_is_cold_afterwards(tmp_path: Path):
    path = make_cold_file(tmp_path / "model", FILE)
    rate = measure(path)
    assert 0 < rate.low_bytes_per_second <= rate.high_bytes_per_second
    assert rate.source.startswith("measured: slices of 256 KiB")
    with open(path, "rb") as file:
        assert resident_pages(file.fileno(), 0, FILE).count(1) < 64


def test_what_others_have_in_memory_stays(tmp_path: Path):
    path = make_cold_file(tmp_path / "model", FILE)
    with open(path, "rb") as file:
        file.read(4 * MIB)
        before = resident_pages(file.fileno(), 0, 4 * MIB).count(1)
        measure(path)
        assert resident_pages(file.fileno(), 0, 4 * MIB).count(1) == before > 0


def test_a_file_that_is_in_memory_cannot_be_measured(tmp_path: Path):
    path = tmp_path / "model"
    path.write_bytes(os.urandom(FILE))
    with pytest.raises(MeasureError, match="in memory already"):
        measure(str(path))


@pytest.mark.parametrize(
    ("more", "says"),
    [({"filesystem": "tmpfs"}, r"in memory \(tmpfs\)"), ({"slices": ()}, "no experts"), ({"seconds": 0.0}, "too few")],
)
def test_what_cannot_be_measured_is_said(tmp_path: Path, more: dict[str, object], says: str):
    path = make_cold_file(tmp_path / "model", FILE)
    with pytest.raises(MeasureError, match=says):
        measure(path, **more)


def test_no_file(tmp_path: Path):
    with pytest.raises(MeasureError, match="cannot read the model file"):
        measure(str(tmp_path / "none"))


def test_a_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = make_cold_file(tmp_path / "model", FILE)

    def refuse(*_arguments: int) -> bytes:
        raise PermissionError

    monkeypatch.setattr(disk_measure, "resident_pages", refuse)
    with pytest.raises(MeasureError, match="only the owner"):
        measure(path)


def test_a_budget_bounds_what_is_read(tmp_path: Path):
    path = make_cold_file(tmp_path / "model", FILE)
    read: list[int] = []
    real = disk_measure._fault

    def counting(descriptor: int, chosen: ByteRange) -> None:
        read.append(chosen.length)
        real(descriptor, chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_measure, "_fault", counting)
        measure(path, budget_bytes=5 * MIB, seconds=20.0)
    assert sum(read) <= 5 * MIB


def test_without_populate_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = make_cold_file(tmp_path / "model", FILE)
    monkeypatch.setattr(slice_faults, "_MADV_POPULATE_READ", 9999)  # EINVAL, as on kernels before 5.14
    assert measure(path).low_bytes_per_second > 0


def test_a_model_too_small_for_the_read_ahead_is_not_called_warm(tmp_path: Path):
    path = make_cold_file(tmp_path / "model", FILE)
    with pytest.raises(MeasureError, match="too small to be measured"):
        measure_slices((path,), SLICES, window_bytes=16 * MIB, threads=2, filesystem="ext4", seed=3)
