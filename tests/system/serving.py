"""A backend in the guest: the unit of the package, with the stand-in where llama-server would be."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from machine import PATIENCE, GuestError, Machine
from package import PYTHON

UNIT = "moetuned-backend@glm.service"
MODEL = "/models/glm.gguf"
CONTEXT = 16384
MIB = 1 << 20
ENVIRONMENT = f"""\
MODEL={MODEL}
HOST=127.0.0.1
PORT=8080
MOETUNED_CONTEXT={{context}}
MOETUNED_SLOTS=1
MOETUNED_PROMPT_CACHE_MIB=0
MOETUNED_CHECKPOINTS=0
MOETUNED_CACHE_TYPE_K=f16
MOETUNED_CACHE_TYPE_V=f16
MORE=--no-warmup -t 1
"""
STAND_IN = f"""\
#!/bin/sh
# It knows no keys, and takes llama-server's other flags.
for word in "$@"; do
    shift
    case $skip$word in
        --api-key-file) skip=next: ;;
        next:*) skip= ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec {PYTHON} -m moetuned.simulator serve "$@"
"""


def configure(machine: Machine, **more: Any) -> None:
    """Of moetuned, for this backend: what is given goes over the entry of it (`backend`) or beside it."""
    entry = {
        "name": "glm",
        "kind": "simulator",
        "model": MODEL,
        "url": "http://127.0.0.1:8080",
        "context": {"preferred": CONTEXT, "minimum": 1024},
        "supervise": {"by": "systemd", "unit": UNIT},
        **more.pop("backend", {}),
    }
    config = {
        "tuning": {"profile": "moe-offload"},
        "warm": {"enabled": False},
        "relief": {"mode": "observe"},
        **more,
        "backends": [entry],
    }
    # JSON is YAML. After what setup wrote: its list of backends would count otherwise.
    machine.write("/etc/moetuned/conf.d/90-test.yaml", json.dumps(config, indent=1))


def bring_model(machine: Machine, server: str = STAND_IN) -> None:
    """A model, and the script that is its llama-server. The model's disk is read-only, so that a frozen machine may hold it."""
    machine.run(
        "mkdir -p /models && echo 'LABEL=models /models ext4 ro,noload,nofail 0 0' >>/etc/fstab && systemctl daemon-reload && mount /models"
    )
    machine.write("/usr/local/bin/llama-server", server, "0755")


def take_model_away(machine: Machine) -> None:
    """All of `bring_model`."""
    machine.run(
        "umount /models; rmdir /models; rm /usr/local/bin/llama-server; sed -i '/LABEL=models/d' /etc/fstab; systemctl daemon-reload"
    )


def set_up(machine: Machine) -> None:
    """moetuned as `moetunectl setup` does it without a question."""
    machine.run(f"moetunectl setup --yes --context {CONTEXT}", 300)
    until_idle(machine)


def bring_backend(machine: Machine, server: str = STAND_IN) -> None:
    """The unit is up and serves, by hand and without moetuned; `server`: the script that is its llama-server."""
    bring_model(machine, server)
    machine.write("/etc/moetuned/backends/glm.env", ENVIRONMENT.format(context=CONTEXT))
    machine.run(f"systemctl start {UNIT}")
    machine.until(
        "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q ' 200 ' <&3", 120
    )


def view(machine: Machine) -> dict[str, Any]:
    """The backend in `moetunectl status --json`."""
    status = json.loads(machine.run("moetunectl status --json"))
    found: dict[str, Any] = next(one for one in status["backends"] if one["name"] == "glm")
    return found


def until_idle(machine: Machine) -> None:
    """Until moetuned knows the backend: it has nothing to do, and its memory is judged."""
    until = time.monotonic() + 180 * PATIENCE
    while True:
        said = machine.ask("moetunectl status --json 2>/dev/null")
        backends = json.loads(said.output)["backends"] if said.status == 0 else []
        for one in backends:
            verdict = one["verdict"]
            if verdict["phase"] == "idle" and verdict["memory"] != "unknown" and one["context"]["now"] is not None:
                return
        if time.monotonic() > until:
            raise GuestError(f"no backend is idle: {said.output}")
        time.sleep(0.3)


def command_line(machine: Machine) -> list[str]:
    """Of the unit's process."""
    return machine.run(f"tr '\\0' '\\n' </proc/$(systemctl show -P MainPID {UNIT})/cmdline").split("\n")


def context(machine: Machine) -> int:
    """What the unit's process was started with."""
    words = command_line(machine)
    return int(words[words.index("--ctx-size") + 1])


def resident_bytes(machine: Machine) -> int:
    """Of the model in the page cache."""
    found = json.loads(machine.run(f"moetunectl residency {MODEL} --json"))
    return int(found["resident_bytes"])


def thrash(machine: Machine, step: Callable[[str], AbstractContextManager[None]]) -> None:
    """Checks: a backend whose model no longer fits thrashes, moetuned sees it, says why, and runs the hooks."""
    configure(
        machine,
        alerts=[{"kind": "exec", "directory": "/etc/moetuned/hooks.d", "on": ["thrash_begin"], "timeout": "60s"}],
    )
    machine.run("systemctl reload moetuned")
    with step("steady while there is room"):
        machine.run(
            f"systemd-run -q --unit=asker {PYTHON} -m moetuned.simulator ask http://127.0.0.1:8080 -n 0 --tokens 32"
        )
        machine.until('moetunectl status --json | grep -Eq \'"paging": ?"(steady|warming)"\'', 120)
    with step("too little memory for the model on a disk of 40 MB/s: a thrash, told by the hook"):
        machine.throttle("data", 40_000_000)
        lowered = float(machine.run(f"systemctl set-property --runtime {UNIT} MemoryMax=300M && date +%s"))
        machine.until("grep -q 'thrash_begin backend=glm' /var/log/moetuned-alerts.log", 240)
    with step("it says why"):
        said = json.loads(machine.run("moetunectl events --event thrash_begin --json | tail -1"))
        assert "refaults" in said["message"]
        # So long that counts as the cause (decide/limit_lowered.py). On emulated processors a thrash may take longer than that to begin.
        if said["wall_seconds"] - lowered < 25:
            assert "its limit was lowered to 300 MiB" in said["message"]


def press(machine: Machine, step: Callable[[str], AbstractContextManager[None]], **backend: Any) -> None:
    """Checks: another program takes memory, and the unit is restarted with a shorter context before the kernel kills anything."""
    configure(
        machine, relief={"mode": "act", "settle": "2s"}, limits={"near": "128MiB", "critical": "24MiB"}, backend=backend
    )
    machine.run("systemctl restart moetuned")
    until_idle(machine)
    before = view(machine)
    with step("another program takes memory: the unit is restarted with a shorter context"):
        take = before["memory"]["headroom_bytes"] - 90 * MIB
        hog = f"{PYTHON} -m moetuned.demo.hog {take} {48 * MIB}"
        machine.run(f"systemd-run -q --unit=hog -p OOMScoreAdjust=-500 {hog}")
        machine.until(
            f'[ "$(systemctl show -P MainPID {UNIT})" != {before["pid"]} ] && systemctl is-active -q {UNIT}', 180
        )
        until_idle(machine)
        assert 1024 <= context(machine) < CONTEXT, command_line(machine)
    with step("it says so, nothing was killed, and the restart was systemd's"):
        assert "backend_restarted" in machine.run("moetunectl events")
        assert machine.run(f"systemctl show -P NRestarts {UNIT}") == "0"
        assert machine.ask("journalctl -k -b | grep -i 'out of memory'").status == 1
        assert "MOETUNED_CONTEXT=" in machine.run("cat /run/moetuned/backends/glm.env")
