"""What is left in /run of programs that ran outside, and what of it goes; that systemd is asked is in test_outside_sandbox_booted.py."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from moetuned.host import unit_states
from moetuned.host.outside_remains import MOST, YOUNG_SECONDS, sweep

OLD = 1_000_000.0


def name_of(number: int) -> str:
    return f"moetuned-run-{number:016x}"


def left(directory: Path, name: str, *files: str, at: float = OLD) -> Path:
    made = directory / name
    made.mkdir(parents=True)
    for file in files:
        (made / file).write_text("x")
    os.utime(made, (at, at))
    return made


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Units that run."""
    units: set[str] = set()
    monkeypatch.setattr(unit_states, "ended_units", lambda asked: frozenset(asked) - units)
    return units


def test_what_belongs_to_no_running_unit_goes(tmp_path: Path, running: set[str]) -> None:
    ended = left(tmp_path, name_of(1), "environment", "end")
    empty = left(tmp_path, name_of(2))
    runs = left(tmp_path, name_of(3), "environment")
    running.add(f"{name_of(3)}.service")
    assert sweep(str(tmp_path)) == 2
    assert [path.exists() for path in (ended, empty, runs)] == [False, False, True]
    assert (runs / "environment").exists()
    assert sweep(str(tmp_path)) == 0


def test_what_somebody_else_may_have_made_stays(
    tmp_path: Path, running: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, target = tmp_path / "outside", tmp_path / "target"
    left(target, "x", "end", "environment")
    more = left(place, name_of(1), "end", "theirs")
    now = 2 * OLD
    monkeypatch.setattr("moetuned.host.outside_remains.time", SimpleNamespace(time=lambda: now))
    left(place, name_of(2), at=now - YOUNG_SECONDS + 1)
    for name in ("moetuned-run-1", f"{name_of(3)}x", "moetuned-run-" + "G" * 16, "other"):
        left(place, name)
    (place / name_of(4)).symlink_to(target / "x")
    (place / name_of(5)).write_text("x")
    inside = left(place, name_of(6))
    (inside / "end").symlink_to(target / "x" / "end")
    before = {path.name for path in place.iterdir()}
    assert sweep(str(place)) == 1, "a link in one of them goes, what it leads to stays"
    assert {path.name for path in place.iterdir()} == before - {name_of(6)}
    assert (more / "theirs").exists()
    assert sorted(path.name for path in (target / "x").iterdir()) == ["end", "environment"]
    left(place, name_of(7), at=now + 1e6)
    assert sweep(str(place)) == 1, "the clock was set back since"


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path, running: set[str]) -> None:
    left(tmp_path / "real", name_of(1))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert sweep(str(tmp_path / "link")) == 0
    assert sweep(str(tmp_path / "none")) == 0
    assert (tmp_path / "real" / name_of(1)).exists()


def test_another_users_stays(tmp_path: Path, running: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    left(tmp_path, name_of(1))
    monkeypatch.setattr("moetuned.host.outside_remains.os.geteuid", lambda: os.getuid() + 1)
    assert sweep(str(tmp_path)) == 0


def test_very_many_are_not_asked_for_at_once(tmp_path: Path, running: set[str]) -> None:
    for number in range(MOST + 5):
        left(tmp_path, name_of(number))
    assert sweep(str(tmp_path)) == MOST
    assert sweep(str(tmp_path)) == 5
