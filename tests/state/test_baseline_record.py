"""What is kept of a process that nobody supervises: of that process only, and gone when it is."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetuned.host.processes import ProcessIdentity
from moetuned.state import baseline_record
from moetuned.state.backend_record import WarmBaseline, WarmSpeed

PROCESS = ProcessIdentity(20, 200)
WARM = WarmBaseline((WarmSpeed(1, 90.0, 1e6),), 5 << 30, 4 << 30, thrash_begun_at=12.5)


def test_it_is_of_this_very_process(tmp_path: Path) -> None:
    directory = str(tmp_path / "baselines")
    assert baseline_record.read(PROCESS, "boot", directory) is None
    baseline_record.write(PROCESS, "boot", WARM, directory)
    assert baseline_record.read(PROCESS, "boot", directory) == WARM
    assert baseline_record.read(PROCESS, "another boot", directory) is None
    assert baseline_record.read(ProcessIdentity(20, 201), "boot", directory) is None
    (path,) = (tmp_path / "baselines").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(path.with_name("20-201.json"))
    assert baseline_record.read(ProcessIdentity(20, 201), "boot", directory) is None, "it says itself whose it is"


def test_it_goes_with_its_process(tmp_path: Path) -> None:
    directory = str(tmp_path)
    other = ProcessIdentity(21, 210)
    baseline_record.prune(lambda _process: True, f"{directory}/none")
    for process in (PROCESS, other):
        baseline_record.write(process, "boot", WARM, directory)
    (tmp_path / "somebody else's").write_text("stays")
    (tmp_path / "20-200.json.new").write_text("half of it")
    baseline_record.prune(lambda process: process == other, directory)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20-200.json", "somebody else's"]
    baseline_record.remove(PROCESS, directory)
    baseline_record.remove(PROCESS, directory)
    assert baseline_record.read(PROCESS, "boot", directory) is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "20-200.json").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        baseline_record.read(PROCESS, "boot", str(tmp_path))
    baseline_record.write(PROCESS, "boot", WARM, str(tmp_path))
    assert (tmp_path / "target").read_text() == "mine"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_rubbish_is_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "20-200.json").write_bytes(data)
    assert baseline_record.read(PROCESS, "boot", str(tmp_path)) is None
