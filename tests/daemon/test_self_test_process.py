"""A daemon whose sandbox is too tight, for real: what is refused is turned off before it is needed, and told everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.booted_systemd import PYTHON_PATH, BootedSystemd, booted

pytestmark = pytest.mark.systemd

CONFIG = {
    "api": {"listen": False},
    "relief": {"mode": "act"},
    "warm": {"protect": "on"},
    "watch": {"discover": False},
    "backends": [
        {"name": "glm", "supervise": {"by": "systemd", "unit": "glm.service"}},
    ],
}
START = "import sys; from moetuned.daemon.main import main; sys.argv[1:] = ['run', '--config', '/etc/m.json']; main()"
UNIT = f"""\
[Service]
Type=notify
NotifyAccess=main
Environment=PYTHONPATH={PYTHON_PATH}
ExecStart={sys.executable} -c "{START}"
KillMode=process
StateDirectory=moetuned
RuntimeDirectory=moetuned
"""
SANDBOXES = {
    "none": ("", set()),
    "no CAP_KILL": ("CapabilityBoundingSet=~CAP_KILL", {("pause", "glm")}),
    "no CAP_SYS_NICE": ("CapabilityBoundingSet=~CAP_SYS_NICE", {("page_out", "glm")}),
    "no lock": (
        "LimitMEMLOCK=0\nCapabilityBoundingSet=~CAP_IPC_LOCK CAP_SYS_RESOURCE",
        {("protect", None)},
    ),
}


@pytest.fixture(scope="module")
def machine() -> Iterator[BootedSystemd]:
    with booted() as found:
        yield found


def ask(machine: BootedSystemd, *words: str) -> Any:
    return json.loads(machine.moetunectl(*words, "--json").stdout)


@pytest.mark.parametrize("case", SANDBOXES)
def test_what_a_sandbox_refuses_is_off_and_told(machine: BootedSystemd, case: str) -> None:
    tight, refused = SANDBOXES[case]
    machine.write("/etc/m.json", json.dumps(CONFIG))
    machine.write("/etc/systemd/system/glm.service", "[Service]\nExecStart=/bin/sleep infinity\n")
    machine.write("/etc/systemd/system/moetuned.service", UNIT + tight + "\n")
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "moetuned.service")
    try:
        found = {"state": "pending"}
        while found["state"] == "pending":
            found = ask(machine, "status", "--capabilities")
        assert (found["state"], found["by"]) == ("done", "daemon")
        no = [one for one in found["capabilities"] if one["answer"] == "no"]
        off = {(action, one["backend"]) for one in no for action in one["actions"]}
        assert refused <= off, found
        assert {pair for pair in off if pair[0] in {action for action, _ in SANDBOXES_ACTIONS}} == refused
        status = ask(machine, "status")
        assert status["cannot"] == found["cannot"]
        assert bool(found["cannot"]) == bool(refused)
        text = " ".join(machine.moetunectl("status").stdout.split())
        for line in found["cannot"]:
            assert line.split(":")[0] in text
            assert machine.journal("moetuned.service").count(f"cannot {line}") == 1
        if ("protect", None) in refused or ("protect", "glm") in refused:
            assert any("lock" in line for line in found["cannot"])
    finally:
        machine.systemctl("stop", "moetuned.service", check=False)
        machine.systemctl("reset-failed", check=False)


SANDBOXES_ACTIONS = {(action, None) for action in ("warm", "protect", "pause", "page_out", "restart")}
