"""How many the OOM killer ended in a cgroup, read again and again from one open file."""

from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.host.oom_counter import OomCounter


@pytest.mark.parametrize("name", ["memory.events.local", "memory.events", "memory.oom_control"])
def test_it_counts_on(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("oom 3\noom_kill 1\n")
    counter = OomCounter(str(tmp_path))
    assert counter.read() == 1
    with file.open("r+") as same:
        same.write("oom 3\noom_kill 2\n")
    assert counter.read() == 2
    counter.close()
    counter.close()
    assert counter.read() is None


def test_its_own_count_goes_before_that_of_those_below(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("oom_kill 9\n")
    (tmp_path / "memory.events.local").write_text("oom_kill 2\n")
    counter = OomCounter(str(tmp_path))
    assert counter.read() == 2
    counter.close()


def test_no_such_cgroup_counts_nothing(tmp_path: Path) -> None:
    assert OomCounter(str(tmp_path / "none")).read() is None
    (tmp_path / "memory.events").write_text("oom 3\n")
    assert OomCounter(str(tmp_path)).read() is None
