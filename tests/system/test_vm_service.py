"""The service on a machine of its own: start, reload, stop, SIGKILL, watchdog; and that settings are as before after each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Start, Step
from machine import Machine
from serving import until_idle, view

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]
KNOB = "/proc/sys/vm/vfs_cache_pressure"
SAME = "bash /root/inventory.sh settings | diff /root/settings -"
TUNED = f'[ "$(cat {KNOB})" = 50 ]'
SWAPPED = "grep -q swapfile /proc/swaps"
ACTIVE = "systemctl is-active -q moetuned"


def config(machine: Machine, text: str) -> None:
    machine.write("/etc/moetuned/moetuned.yaml", text)


def test_start_reload_stop(start: Start, serving: Path, models: Path, step: Step) -> None:
    machine = start(serving, models)
    with step("enabled, active, status is green"):
        machine.run(f"systemctl is-enabled moetuned && {ACTIVE} && moetunectl check && moetunectl status")
    with step("in its sandbox it can do all that its config needs"):
        machine.until("""moetunectl status --capabilities --json | grep -Eq '"state": ?"done"'""")
        said = json.loads(machine.run("moetunectl status --capabilities --json"))
        assert said["by"] == "daemon"
        assert said["cannot"] == []
        # On an emulated processor what is tried outside of the unit may take longer than a try may.
        late = [one for one in said["capabilities"] if one["answer"] == "unknown" and one["why"].endswith("in time")]
        assert [one for one in said["capabilities"] if one["answer"] != "yes" and one not in late] == []
        print(f"   {len(said['capabilities']) - len(late)} capabilities: yes; {len(late)} came too late to be known")
    with step("units are clean for systemd-analyze"):
        assert machine.run("systemd-analyze verify --man=no moetuned.service moetuned-backend@x.service 2>&1") == ""
    with step("the kernel is tuned"):
        machine.run(f"{TUNED} && moetunectl tune verify")
    with step("a reload is applied by the same process"):
        before = machine.run("systemctl show -P MainPID moetuned")
        config(machine, "tuning: {profile: moe-offload, sysctl: {vm.vfs_cache_pressure: 60}}")
        machine.run("systemctl reload moetuned")
        machine.until(f'[ "$(cat {KNOB})" = 60 ]')
        assert machine.run("systemctl show -P MainPID moetuned") == before
    with step("a reload to observe gives everything back"):
        config(machine, "tuning: {profile: observe}")
        machine.run("systemctl reload moetuned")
        machine.until(SAME)
    with step("a reload of a config that is wrong changes nothing and says so"):
        config(machine, "tuning: {profile: nonsense}")
        machine.run("systemctl reload moetuned")
        machine.until("journalctl -u moetuned -b -o cat | grep -q 'tuning.profile'")
        machine.run(f"{ACTIVE} && {SAME}")
    with step("tuned again"):
        config(machine, "tuning: {profile: moe-offload}")
        machine.run("systemctl reload moetuned")
        machine.until(TUNED)
    with step("journal entries have moetuned's fields"):
        machine.run('journalctl -u moetuned -b -o json | grep -q \'"SYSLOG_IDENTIFIER":"moetuned"\'')
    with step("stopped: every setting as before"):
        machine.run(f"systemctl stop moetuned && {SAME}")
        machine.run("test ! -e /var/lib/moetuned/undo.jsonl")


def test_killed_and_hung(start: Start, serving: Path, models: Path, step: Step) -> None:
    machine = start(serving, models)
    backend = view(machine)["pid"]
    with step("a swap file is made at a reload"):
        config(machine, "tuning: {profile: moe-offload, swap: {file: /var/lib/moetuned/swapfile, size: 64MiB}}")
        machine.run("systemctl reload moetuned")
        machine.until("grep -q swapfile /proc/swaps")
    with step(
        "SIGKILL: settings are given back before it is started again, then set again; there is one swap, one backend"
    ):
        machine.run("systemctl kill -s KILL --kill-whom=main moetuned")
        machine.until(f'[ "$(systemctl show -P NRestarts moetuned)" = 1 ] && {ACTIVE} && {TUNED} && {SWAPPED}')
        machine.run("journalctl -u moetuned -b -o cat | grep -q 'vm.vfs_cache_pressure.*100'")
        assert machine.run("grep -c swapfile /proc/swaps") == "1"
        until_idle(machine)
        assert view(machine)["pid"] == backend
        assert machine.run("pgrep -fc 'moetuned.simulator serve'") == "1"
    with step("SIGKILL without a restart: every setting as before, the swap file is gone"):
        machine.write("/run/systemd/system/moetuned.service.d/x.conf", "[Service]\nRestart=no\n")
        machine.run("systemctl daemon-reload; systemctl kill -s KILL --kill-whom=main moetuned")
        machine.until('[ "$(systemctl show -P ActiveState moetuned)" = failed ]')
        machine.run(f"{SAME} && test ! -e /var/lib/moetuned/swapfile")
    with step("a daemon that hangs is ended by the watchdog and started again"):
        # Shorter than the unit's own, only to wait less.
        machine.write("/run/systemd/system/moetuned.service.d/x.conf", "[Service]\nWatchdogSec=8\n")
        machine.run("systemctl daemon-reload; systemctl reset-failed moetuned; systemctl start moetuned", 180)
        machine.run("kill -STOP $(systemctl show -P MainPID moetuned)")
        machine.until(f'[ "$(systemctl show -P NRestarts moetuned)" = 1 ] && {ACTIVE} && {TUNED} && {SWAPPED}', 120)
        machine.run("journalctl -u moetuned -b -o cat | grep -qi 'watchdog timeout'")
    with step(
        "stopped: the swap is gone at once, nothing of it is left running or failed, somebody else's change is left alone"
    ):
        machine.run(f"echo 77 >{KNOB} && systemctl stop moetuned && grep -qx 77 {KNOB}")
        machine.run(f"! {SWAPPED} && test ! -e /var/lib/moetuned/swapfile")
        assert machine.run("cat /sys/fs/cgroup/moetuned.slice/moetuned.service/cgroup.procs 2>/dev/null || true") == ""
        assert machine.run("systemctl --failed --no-legend") == ""
        assert "restrictions of moetuned's unit" not in machine.run("journalctl -u moetuned -b -o cat")
        machine.run(f"echo 100 >{KNOB} && {SAME}")
