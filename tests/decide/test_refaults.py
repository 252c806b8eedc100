from __future__ import annotations

from typing import Any

import pytest
from signal_cases import facts_of, sample_of

from moetuned.decide.refaults import refault_rate
from moetuned.decide.window import window_of

PAGES = 1000
BYTES = PAGES * 4096


def found(read: int, device: int | None, cgroup_pages: int | None = None, seconds: float = 1.0) -> float | None:
    def sample(at: float, share: int) -> dict[str, Any]:
        disks = {} if device is None else {"sda": {"read_bytes": device * share}}
        return {
            "t": at,
            "process": {"read_bytes": read * share},
            "cgroup": None if cgroup_pages is None else {"refault_file_pages": cgroup_pages * share},
            "machine": {"vmstat": {"refault_file_pages": PAGES * share}, "disks": disks},
        }

    window = window_of([sample_of(sample(0, 0)), sample_of(sample(1, 1))], "one", facts_of({}))
    assert window is not None
    return refault_rate(window, seconds)


@pytest.mark.parametrize(
    ("read", "device", "rate"),
    [
        (BYTES, BYTES, BYTES),
        (BYTES, None, BYTES),
        (int(BYTES * 0.9), BYTES, BYTES),
        (BYTES // 2, BYTES, None),
        (BYTES, 2 * BYTES, None),
        (0, BYTES, 0),
    ],
)
def test_the_machines_refaults_are_its_own_only_when_nobody_else_reads(
    read: int, device: int | None, rate: float | None
) -> None:
    assert found(read, device) == rate


def test_its_own_cgroup_needs_no_such_guess() -> None:
    assert found(1, 100 * BYTES, cgroup_pages=7) == 7 * 4096
