"""The real kernel: apply, verify, drift, rollback, and a process killed in the middle. All of it is restored, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.own_settings import own_settings

from moetuned.host.fs import RealFS
from moetuned.state.undo_journal import open_journal, read_boot_id, read_journal

pytestmark = pytest.mark.kernel

VM = Path("/proc/sys/vm")
THP = Path("/sys/kernel/mm/transparent_hugepage")

MOETUNECTL = [sys.executable, "-c", "from moetuned.cli.main import main; main()"]

DYING_CHILD = """
import os, signal, sys
from moetuned import tunables
from moetuned.host.fs import RealFS
from moetuned.schema.config import Profile, Tuning
from moetuned.state import tuning
from moetuned.state.undo_journal import open_journal, read_boot_id, read_journal

path, work, at, when = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

class DyingFS(RealFS):
    left = at
    def write_text(self, path, text):
        self.left -= 1
        if self.left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().write_text(path, text)
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

fs = DyingFS()
with open_journal(path, read_boot_id(fs)) as journal:
    if work == "apply":
        tuning.apply(fs, journal, tunables.plan_tuning(fs, Tuning(profile=Profile.MOE_OFFLOAD))[0])
    else:
        tuning.rollback(fs, journal)
"""


def all_settings() -> dict[str, str]:
    """Every setting of sysctl -a vm.* and of THP."""
    found = {}
    for path in sorted([*VM.iterdir(), *THP.rglob("*")]):
        mode = path.stat().st_mode
        if path.is_file() and mode & 0o400 and mode & 0o200:  # counters are read-only
            found[str(path)] = path.read_text()
    return found


@pytest.fixture
def machine() -> Iterator[dict[str, str]]:
    """What every setting is before; put back after the test, also when it fails."""
    with own_settings():
        yield all_settings()


@pytest.fixture
def journal_path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "undo.jsonl")


def moetunectl(*arguments: str, journal: str, code: int = 0) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [*MOETUNECTL, *arguments, "--json", "--journal", journal],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {view["name"]: view for view in json.loads(done.stdout)["tuning"]}


def test_apply_verify_drift_rollback(machine: dict[str, str], journal_path: str, tmp_path: Path) -> None:
    config = tmp_path / "moetuned.yaml"
    # A limit in bytes is left alone unless the config asks for another one.
    config.write_text("tuning: {profile: moe-offload, sysctl: {vm.dirty_background_ratio: 5}}\n")
    os.chmod(config, 0o600)
    ours = ["--config", str(config)]
    # Something to change wherever the machine stands: these are no values of the profile.
    (VM / "vfs_cache_pressure").write_text("90")
    (VM / "dirty_background_bytes").write_text("67108864")
    before = all_settings()

    applied = moetunectl("tune", "apply", *ours, journal=journal_path)
    by_state = {name: view["state"] for name, view in applied.items()}
    skipped = {name for name, state in by_state.items() if state == "skipped"}
    assert skipped <= {"vm.page-cluster", "vm.swappiness"}, "where there is no swap"
    assert set(by_state.values()) - {"skipped"} <= {"applied", "already"}
    assert (VM / "vfs_cache_pressure").read_text() == "50\n"
    assert (VM / "dirty_background_bytes").read_text() == "0\n"
    assert "[never]" in (THP / "enabled").read_text()
    assert applied["vm.dirty_background_ratio"]["original"] == "dirty_background_bytes=67108864"
    moetunectl("tune", "verify", *ours, journal=journal_path)

    again = moetunectl("tune", "apply", *ours, journal=journal_path)
    assert again["vm.vfs_cache_pressure"]["original"] == "90", "never our own value"

    (VM / "vfs_cache_pressure").write_text("77")
    drifted = moetunectl("tune", "verify", *ours, journal=journal_path, code=1)
    assert drifted["vm.vfs_cache_pressure"]["state"] == "drifted"

    restored = moetunectl("tune", "rollback", journal=journal_path)
    assert restored["vm.vfs_cache_pressure"]["state"] == "drifted"
    after = all_settings()
    assert after.pop(str(VM / "vfs_cache_pressure")) == "77\n"
    before.pop(str(VM / "vfs_cache_pressure"))
    assert after == before
    left = read_journal(journal_path, read_boot_id(RealFS()))
    assert left.held == {}, "only that it is somebody else's now"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("work", ["apply", "rollback"])
def test_sigkill_at_every_write(machine: dict[str, str], journal_path: str, work: str, when: str) -> None:
    (VM / "vfs_cache_pressure").write_text("90")
    (VM / "dirty_bytes").write_text("67108864")
    before = all_settings()
    kills = 0
    for at in range(1, 20):
        if work == "rollback":
            subprocess.run(
                [sys.executable, "-c", DYING_CHILD, journal_path, "apply", "0", when], check=True, timeout=60
            )
        child = subprocess.run(
            [sys.executable, "-c", DYING_CHILD, journal_path, work, str(at), when], check=False, timeout=60
        )
        if child.returncode == 0:
            moetunectl("tune", "rollback", journal=journal_path)
            break
        assert child.returncode == -signal.SIGKILL
        kills += 1
        moetunectl("tune", "rollback", journal=journal_path)
        assert all_settings() == before, f"killed at write {at}"
        assert not os.path.exists(journal_path)
    assert kills >= 2
    assert all_settings() == before


def test_what_another_process_holds_is_not_touched(machine: dict[str, str], journal_path: str, tmp_path: Path) -> None:
    with open_journal(journal_path, read_boot_id(RealFS())):
        for arguments in (["apply", "--profile", "moe-offload"], ["rollback"]):
            done = subprocess.run(
                [*MOETUNECTL, "tune", *arguments, "--journal", journal_path, "--socket", str(tmp_path / "none.sock")],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 3
            assert "another process holds" in done.stderr
    assert all_settings() == machine
