"""What a real journal has of events when systemd runs the daemon: an entry with its fields, once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fakes.booted_systemd import PYTHON_PATH, BootedSystemd

pytestmark = pytest.mark.systemd

LIMIT_SECONDS = 90.0
MODEL = "/var/lib/model.gguf"
ENVIRONMENT = f'Environment="PYTHONPATH={PYTHON_PATH}"'
SERVE = f"{sys.executable} -m moetuned.simulator serve --model {MODEL} --port 8080 --metrics -c 4096 --cache-ram 0"
CONFIG = {
    "api": {"listen": False},
    "watch": {"interval": "200ms", "discover": False},
    "warm": {"enabled": False},
    "backends": [{"name": "glm", "model": MODEL, "url": "http://127.0.0.1:8080"}],
}


def entries(machine: BootedSystemd, *matches: str) -> list[dict[str, Any]]:
    said = machine.run("journalctl", "--no-pager", "--output=json", *matches, check=False).stdout
    return [json.loads(line) for line in said.splitlines()]


def until(condition: Callable[[], Any], what: str) -> Any:
    limit = time.monotonic() + LIMIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < limit, f"it never came to this: {what}"
    return found


def is_idle(machine: BootedSystemd) -> bool:
    done = machine.moetunectl("status", "--json", check=False)
    backends = json.loads(done.stdout)["backends"] if done.returncode == 0 else []
    return [each["verdict"]["phase"] for each in backends] == ["idle"]


def test_an_event_is_in_the_journal_once_with_its_fields(booted_systemd: BootedSystemd) -> None:
    machine = booted_systemd
    machine.run(sys.executable, "-m", "moetuned.simulator", "make-model", MODEL, "--size", "40M")
    machine.write("/etc/moetuned/moetuned.yaml", yaml.safe_dump(CONFIG))
    daemon = f"[Service]\nType=notify\n{ENVIRONMENT}\nExecStart={sys.executable} -m moetuned.daemon run\n"
    machine.write(
        "/etc/systemd/system/moetuned.service", f"{daemon}StateDirectory=moetuned\nRuntimeDirectory=moetuned\n"
    )
    machine.write("/etc/systemd/system/llama.service", f"[Service]\nType=exec\n{ENVIRONMENT}\nExecStart={SERVE}\n")
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "llama.service", "moetuned.service")
    until(lambda: is_idle(machine), "ready")
    machine.systemctl("kill", "--signal=SIGKILL", "llama.service")
    (down,) = until(lambda: entries(machine, "MESSAGE_ID=8b3571ffda09400880e739292f127d9c"), "its entry")
    assert down["MESSAGE"].startswith("backend_down: glm")
    assert (down["PRIORITY"], down["SYSLOG_IDENTIFIER"], down["MOETUNED_EVENT"]) == ("3", "moetuned", "backend_down")
    assert (down["MOETUNED_BACKEND"], down["_SYSTEMD_UNIT"]) == ("glm", "moetuned.service")
    events = json.loads(machine.moetunectl("events", "--json").stdout.splitlines()[-1])
    assert down["MOETUNED_EVENT_ID"] == events["id"]
    machine.systemctl("stop", "moetuned.service")
    messages = [entry["MESSAGE"] for entry in entries(machine, "_SYSTEMD_UNIT=moetuned.service")]
    assert [text for text in messages if "backend_down" in text] == [down["MESSAGE"]], "not a second time from the log"
    assert any("ready" in text for text in messages), "the log goes there as well"
