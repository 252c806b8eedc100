"""kill -9, power cuts and a full disk at random moments: the service comes back, settings are consistent, and there is one backend.

What happens is drawn from SEED (printed; a new one each time where it is not given), RUNS times (30).
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import FULL, Start, Step, prepare
from machine import Image, Machine
from serving import MODEL, STAND_IN, until_idle

RUNS = int(os.environ.get("RUNS") or 30)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not FULL, reason="takes a quarter of an hour: FULL=1"),
]
SAME = "bash /root/inventory.sh settings | diff /root/settings -"
SERVERS = "pgrep -fc 'python3 -m moetuned.simulator serve'"
DISASTERS = ("SIGKILL", "power cut", "full disk", "full disk and SIGKILL", "full disk and power cut")
ACTIVITIES = {
    "nothing": "true",
    "reload to other values": "cp /root/other.yaml /etc/moetuned/moetuned.yaml; sync; systemctl reload moetuned",
    "reload to observe": "cp /root/observe.yaml /etc/moetuned/moetuned.yaml; sync; systemctl reload moetuned",
    "restart of the service": "systemctl --no-block restart moetuned",
    "restart of the backend": "systemd-run -q moetunectl backend restart glm --yes",
    "rollback and apply": "systemd-run -q sh -c 'moetunectl tune rollback; moetunectl tune apply'",
}


@dataclass(frozen=True)
class Plan:
    """What one run does."""

    activity: str
    disaster: str
    delay_seconds: float

    def __str__(self) -> str:
        return f"{self.activity}, after {self.delay_seconds:.1f} s {self.disaster}"


def plans(seed: int, runs: int) -> list[Plan]:
    dice = random.Random(seed)
    return [Plan(dice.choice(list(ACTIVITIES)), dice.choice(DISASTERS), dice.uniform(0, 6)) for _ in range(runs)]


@pytest.fixture(scope="session")
def owning(image: Image, installed: Path, models: Path) -> Path:
    """Frozen: moetuned has started a backend of its own, has made swap, and is in act mode."""
    command = [
        "/usr/local/bin/llama-server",
        "-m",
        "{model}",
        "-c",
        "{context}",
        "-t",
        "1",
        "--no-warmup",
        "--cache-ram",
        "0",
        "--port",
        "8080",
    ]
    entry = {
        "name": "glm", "kind": "simulator", "model": MODEL, "url": "http://127.0.0.1:8080",
        "context": {"preferred": 8192, "minimum": 1024}, "supervise": {"by": "process", "command": command},
    }  # fmt: skip
    swap = {"file": "/var/lib/moetuned/swapfile", "size": "64MiB"}
    tunings = {
        "/etc/moetuned/moetuned.yaml": {"profile": "moe-offload", "swap": swap},
        "/root/other.yaml": {"profile": "moe-offload", "sysctl": {"vm.vfs_cache_pressure": 60}},
        "/root/observe.yaml": {"profile": "observe"},
    }

    def act(machine: Machine) -> None:
        machine.run("mkdir -p /models && echo 'LABEL=models /models ext4 ro,noload 0 0' >>/etc/fstab && mount /models")
        machine.write("/usr/local/bin/llama-server", STAND_IN, "0755")
        for path, tuning in tunings.items():
            config = {"tuning": tuning, "relief": {"mode": "act"}, "warm": {"enabled": False}, "backends": [entry]}
            machine.write(path, json.dumps(config))
        machine.run("systemctl enable --now moetuned", 180)
        until_idle(machine)

    return prepare(image, installed, "owning", act, models)


def strike(machine: Machine, disaster: str) -> None:
    """It happens now; afterwards there is room on the disk again."""
    if disaster.startswith("full disk"):
        # To the last byte: the blocks that fallocate leaves, too.
        machine.run(
            "fallocate -l $(df --output=avail -B1 /var | tail -1) /var/tmp/filler; cat /dev/zero >/var/tmp/rest 2>/dev/null; true"
        )
        machine.ask("timeout 20 moetunectl tune apply")
    if disaster.endswith("SIGKILL"):
        # In the middle of a restart there is none for a moment.
        machine.until("systemctl kill -s KILL --kill-whom=main moetuned", 60)
    if disaster.endswith("power cut"):
        if disaster.startswith("full disk"):
            machine.run("sync")
        machine.reset()
    if disaster.startswith("full disk"):
        machine.ask("sleep 3")
        machine.run("rm -f /var/tmp/filler /var/tmp/rest")


@pytest.mark.parametrize(
    "plan", plans(SEED, RUNS) if FULL else [], ids=[f"{SEED}-{number}" for number in range(RUNS)] if FULL else []
)
def test_disaster(plan: Plan, start: Start, owning: Path, models: Path, step: Step) -> None:
    machine = start(owning, models)
    with step(f"{plan}: the service comes back, and its backend serves, once"):
        machine.run(ACTIVITIES[plan.activity])
        machine.run(f"sleep {plan.delay_seconds:.2f}")
        strike(machine, plan.disaster)
        machine.until("systemctl is-active -q moetuned && moetunectl status", 180)
        until_idle(machine)
        assert machine.run(SERVERS) == "1"
    with step("config and journal are readable, settings are what one of the configs wants"):
        machine.run("moetunectl config check && moetunectl tune plan")
        machine.until("moetunectl tune apply && moetunectl tune verify", 60)
        machine.run("test ! -e /var/lib/moetuned/undo.jsonl.damaged")
    with step("stopped: no setting, swap or process of it is left"):
        machine.run(f"systemctl stop moetuned && {SAME}", 180)
        assert machine.ask(SERVERS).output.strip() == "0"
        machine.run("test ! -e /var/lib/moetuned/swapfile && test ! -e /var/lib/moetuned/undo.jsonl")
