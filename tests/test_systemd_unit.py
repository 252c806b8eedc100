import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from moetuned.daemon.main import EXIT_USAGE
from moetuned.decide.unit_adoption import VALUES, set_by
from moetuned.parse.unit_file import UnitFile, merge_service, parse_unit_file

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "systemd" / "moetuned.service"
BACKEND = ROOT / "systemd" / "moetuned-backend@.service"
SLICE = ROOT / "systemd" / "moetuned.slice"
EXAMPLE = ROOT / "etc" / "backends" / "example.env"


@pytest.fixture(scope="module")
def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
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
    assert service["ExecStopPost"] == "+/usr/local/bin/moetunectl tune rollback --alone"
    assert service["Restart"] == "on-failure"
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryPreserve"]) == ("moetuned", "yes")
    assert service["StateDirectory"] == "moetuned"


def test_original_settings_are_noted_after_others_have_set_theirs(unit):
    assert "systemd-sysctl.service" in unit["Unit"]["After"].split()


def test_a_backends_unit_takes_what_a_restart_changes_from_moetuneds_file():
    """As `moetunectl backend adopt` would see it; the example has every variable that it uses."""
    unit = UnitFile("/u", BACKEND.read_text())
    service = merge_service([unit])
    files = [value.removeprefix("-").replace("%i", "glm") for _, value in service.environment_files]
    assert files == ["/etc/moetuned/backends/glm.env", "/run/moetuned/backends/glm.env"]
    assert set(set_by(service, files[-1], files).variables) == set(VALUES)
    example = set(re.findall(r"^([A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE))
    used = set(re.findall(r"\$\{?([A-Z_]+)", service.commands[0][1]))
    assert used == example


def test_a_backends_unit_reaches_models_and_graphics_cards_and_says_why_it_ended():
    lines = {line.key: line.value for line in parse_unit_file(BACKEND.read_text()) if line.section == "Service"}
    assert not {"PrivateDevices", "ProtectClock", "MemoryDenyWriteExecute", "DevicePolicy", "PrivateNetwork"} & set(
        lines
    )
    assert (lines["ProtectHome"], lines["OOMPolicy"], lines["Restart"]) == ("read-only", "stop", "on-failure")


def values(path, section):
    """Of a unit; where a key stands twice, all of it."""
    found = {}
    for line in parse_unit_file(path.read_text()):
        if line.section == section:
            found.setdefault(line.key, []).extend(line.value.split())
    return found


def test_the_slice_grants_what_is_granted_in_it():
    inner, outer = values(UNIT, "Service"), values(SLICE, "Slice")
    assert inner["Slice"] == values(BACKEND, "Service")["Slice"] == [SLICE.name]
    inner, outer = (int(each["MemoryMin"][0].removesuffix("M")) for each in (inner, outer))
    assert 36 < inner <= outer


def test_the_daemon_comes_back_however_often_it_crashed_but_not_from_a_config_that_is_wrong():
    assert values(UNIT, "Unit")["StartLimitIntervalSec"] == ["0"]
    assert values(UNIT, "Service")["RestartPreventExitStatus"] == [str(EXIT_USAGE)]


def test_the_daemon_keeps_what_its_work_needs():
    """Nothing here fails at once without them: one fault, one OOM kill or one new disk later it would."""
    service = values(UNIT, "Service")
    assert {"CAP_SYS_PTRACE", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_FOWNER"} < set(
        service["CapabilityBoundingSet"]
    )
    assert "AF_NETLINK" in service["RestrictAddressFamilies"]
    for key in ("ProtectKernelTunables", "ProtectControlGroups", "PrivateDevices", "ProtectProc", "DevicePolicy"):
        assert key not in service, key
    assert "block-*" in service["DeviceAllow"]
    for unit in (service, values(BACKEND, "Service")):
        assert unit["SystemCallErrorNumber"] == ["EPERM"], "systemd's own default is to kill"
    assert not {"@resources", "@privileged"} & set(service["SystemCallFilter"])


def test_each_exception_is_explained_in_the_unit():
    text = UNIT.read_text()
    for key in (
        "MemoryDenyWriteExecute", "ProtectKernelTunables", "ProtectControlGroups", "PrivateDevices", "ProtectProc",
        "PrivateNetwork", "IPAddressDeny", "@resources", "@privileged", "DAC_*", "KILL", "SYS_NICE", "SYS_PTRACE", "SYS_RESOURCE",
    ):  # fmt: skip
        assert any(line.startswith("#") and key in line for line in text.splitlines()), key


def test_the_manual_names_every_capability():
    told = (ROOT / "docs" / "install.md").read_text()
    for name in values(UNIT, "Service")["CapabilityBoundingSet"]:
        assert f"`{name}`" in told, name


analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@analyze
@pytest.mark.parametrize("unit", [UNIT, BACKEND, SLICE], ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong(unit, tmp_path):
    copy = tmp_path / unit.name.replace("@", "@glm")
    text = re.sub(r"/usr/local/bin/moetune(d|ctl)", "/bin/true", unit.read_text())
    copy.write_text(text.replace("ExecStart=llama-server", "ExecStart=/bin/true"))
    if unit is not SLICE:
        (tmp_path / SLICE.name).write_text(SLICE.read_text())
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@analyze
@pytest.mark.parametrize("unit", [UNIT, BACKEND], ids=lambda path: path.name)
def test_it_is_exposed_to_no_more_than_its_work_needs(unit):
    result = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=35", "--no-pager", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unrecognized option" in result.stderr:
        pytest.skip("this systemd-analyze (before 250) takes no file")
    assert result.returncode == 0, result.stdout + result.stderr
