"""Frozen by a cgroup, v1 and v2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.frozen import is_frozen
from moetuned.host.fs import RealFS


def tree(root: Path, version: int, said: str | None, path: str = "/a") -> RealFS:
    (root / "proc/7").mkdir(parents=True)
    (root / "proc/self").mkdir()
    kind, options, name = (
        ("cgroup", "rw,freezer", "freezer.state") if version == 1 else ("cgroup2", "rw", "cgroup.events")
    )
    (root / "proc/self/mountinfo").write_text(f"30 20 0:26 / /cg rw - {kind} none {options}\n")
    (root / "proc/7/cgroup").write_text(f"4:freezer:{path}\n" if version == 1 else f"0::{path}\n")
    if said is not None:
        (root / f"cg{path}").mkdir(parents=True)
        (root / f"cg{path}/{name}").write_text(said)
    return RealFS(str(root))


@pytest.mark.parametrize(
    ("version", "said", "expected"),
    [
        (2, "populated 1\nfrozen 1\n", True),
        (2, "populated 1\nfrozen 0\n", False),
        (2, None, False),
        (1, "FROZEN\n", True),
        (1, "FREEZING\n", True),
        (1, "THAWED\n", False),
        (1, None, False),
    ],
)
def test_what_its_cgroup_says(tmp_path: Path, version: int, said: str | None, expected: bool) -> None:
    assert is_frozen(7, tree(tmp_path, version, said)) is expected


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    fs = tree(tmp_path, 2, "frozen 0\n")
    assert is_frozen(8, fs) is None


def test_this_process_is_not() -> None:
    assert is_frozen(os.getpid()) is not True
