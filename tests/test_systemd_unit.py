import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parent.parent / "systemd" / "moetuned.service"


@pytest.fixture(scope="module")
def unit():
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str
    parser.read(UNIT)
    return parser


def test_it_notifies_and_is_watched(unit):
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) >= 10
    assert service["ExecStart"] == "/usr/local/bin/moetuned run"
    assert service["ExecReload"].split() == ["/bin/kill", "-HUP", "$MAINPID"]


def test_a_crash_of_the_daemon_ends_no_backend_and_leaves_no_setting(unit):
    service = unit["Service"]
    assert service["KillMode"] == "process"
    assert service["OOMPolicy"] == "continue"
    assert service["ExecStopPost"] == "/usr/local/bin/moetunectl tune rollback --alone"
    assert service["Restart"] == "on-failure"
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryPreserve"]) == ("moetuned", "yes")
    assert service["StateDirectory"] == "moetuned"


def test_original_settings_are_noted_after_others_have_set_theirs(unit):
    assert "systemd-sysctl.service" in unit["Unit"]["After"].split()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong(tmp_path):
    copy = tmp_path / "moetuned.service"
    copy.write_text(re.sub(r"/usr/local/bin/moetune(d|ctl)", "/bin/true", UNIT.read_text()))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
