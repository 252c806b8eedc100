"""What persist writes, read by the programs that read it at boot, on the real kernel. In a mount namespace with an /etc of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.own_settings import own_settings

from moetuned.host.fs import RealFS

pytestmark = pytest.mark.kernel

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SYSTEMD_SYSCTL = next(
    (path for path in ("/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl") if Path(path).exists()), None
)


@pytest.fixture
def fs() -> Iterator[RealFS]:
    with own_settings() as real:
        yield real


def private(script: str, *arguments: str) -> str:
    """Output of a shell script in a mount namespace where the directories that persist writes to are empty."""
    hide = "mount --make-rprivate / && for d in /etc/sysctl.d /etc/tmpfiles.d; do mount -t tmpfs none $d || exit 77; done; "
    command = ["unshare", "--mount", "sh", "-c", hide + script, "sh", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 77:
        pytest.skip(f"cannot mount here: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_boot_sets_what_was_persisted(fs: RealFS, tmp_path: Path) -> None:
    if shutil.which("systemd-tmpfiles") is None or SYSTEMD_SYSCTL is None or shutil.which("unshare") is None:
        pytest.skip("needs systemd-tmpfiles, systemd-sysctl and unshare")
    missing = [path for path in ("/etc/sysctl.d", "/etc/tmpfiles.d") if not Path(path).is_dir()]
    if missing:
        pytest.skip(f"this machine has no {missing[0]}")
    config = tmp_path / "moetuned.yaml"
    config.write_text(
        "tuning: {profile: moe-offload, thp: never, sysctl: {vm.dirty_ratio: 13, vm.vfs_cache_pressure: 61}}\n"
    )
    config.chmod(0o600)
    tune = [sys.executable, "-c", "from moetuned.cli.main import main; main()", "tune"]
    output = private(
        'config=$1; sysctl=$2; journal=$3; shift 3; "$@" persist --config $config --journal $journal && '
        "$sysctl /etc/sysctl.d/90-moetuned.conf && systemd-tmpfiles --create --boot /etc/tmpfiles.d/moetuned.conf && "
        '"$@" unpersist --journal $journal && ls -A /etc/sysctl.d /etc/tmpfiles.d',
        str(config),
        SYSTEMD_SYSCTL,
        str(tmp_path / "state/undo.jsonl"),
        *tune,
    )
    assert fs.read_text("/proc/sys/vm/dirty_ratio") == "13\n"
    assert fs.read_text("/proc/sys/vm/vfs_cache_pressure") == "61\n"
    assert "[never]" in fs.read_text(THP)
    assert output.endswith("/etc/sysctl.d:\n\n/etc/tmpfiles.d:\n")
    assert not Path("/etc/sysctl.d/90-moetuned.conf").exists()
