"""A backend that is a unit of the package: restarted under memory pressure, protected from a page-cache hog, thrashing, over a reboot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import FULL, Start, Step
from machine import Machine
from package import PYTHON
from serving import MIB, UNIT, configure, press, resident_bytes, thrash, until_idle, view

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]
# Mapped: what is only read once and in order goes first, and would leave the model alone.
HOG = """\
import mmap
with open("/var/tmp/other", "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for _ in range(2):
    for offset in range(0, len(memory), mmap.PAGESIZE):
        memory[offset]
"""
GROWS = """\
import sys, time
held = []
for _ in range(int(sys.argv[1])):
    held.append(b"x" * (1 << 20))
    time.sleep(0.05)
open("/run/grown", "w").close()
time.sleep(600)
"""
LRU = "/sys/kernel/mm/lru_gen/enabled"
PROPERTIES = {"memory_low": "MemoryLow", "memory_min": "MemoryMin"}
SAME = "bash /root/inventory.sh settings | diff /root/settings -"


def test_set_up(start: Start, serving: Path, models: Path, step: Step) -> None:
    machine = start(serving, models)
    with step("after moetunectl setup --yes both units are enabled and active, and the check is OK"):
        machine.run(f"systemctl is-enabled moetuned {UNIT} && systemctl is-active moetuned {UNIT}")
        assert machine.run("moetunectl check").startswith("MOETUNED OK")
    with step("the unit is the backend's, its model's residency is known"):
        found = view(machine)
        assert found["supervised"]
        assert found["pid"] == int(machine.run(f"systemctl show -P MainPID {UNIT}"))
        assert found["residency"]["resident_bytes"] > 0
    with step("once more it changes nothing"):
        files = "find /etc/moetuned /etc/systemd -type f -printf '%p %T@\\n' | sort"
        before = machine.run(files)
        said = json.loads(machine.run("moetunectl setup --yes --json", 180))
        assert said["done"] == [], said
        assert machine.run(files) == before
        assert view(machine)["pid"] == found["pid"]
    with step("taken back: its files and units are gone, and nothing serves"):
        machine.run("moetunectl setup --undo --yes", 180)
        machine.run("test ! -e /etc/moetuned/conf.d/50-setup.yaml && test ! -e /etc/moetuned/backends/glm.env")
        assert machine.ask(f"systemctl is-active {UNIT}").output.strip() == "inactive"
        assert machine.ask(f"systemctl is-enabled {UNIT}").output.strip() == "disabled"
        machine.run(f"systemctl stop moetuned; {SAME}")


def test_shorter_context_under_memory_pressure(start: Start, serving: Path, models: Path, step: Step) -> None:
    machine = start(serving, models)
    press(machine, step)
    with step("there is one backend"):
        assert machine.run("pgrep -fc 'moetuned.simulator serve'") == "1"


@pytest.mark.skipif(not FULL, reason="takes minutes: FULL=1")
@pytest.mark.parametrize("mglru", [False, True], ids=["classic", "multi-gen"])
def test_protection_against_a_page_cache_hog(
    mglru: bool, start: Start, serving: Path, models: Path, step: Step
) -> None:
    """The same hog on machines that begin the same, without protection and with what docs/configure.md says holds on such a machine."""
    left = {}
    for how in ("nothing", "memory_low", "memory_min", *(("MemoryHigh",) if mglru else ())):
        machine = start(serving, models, mglru=mglru)
        with step(f"another file of 1 GiB is mapped and read twice; protection: {how}"):
            if not mglru:
                # What was read with the other LRU would be taken for much used.
                machine.run(f"systemctl stop {UNIT}; echo 3 >/proc/sys/vm/drop_caches; systemctl start {UNIT}", 180)
                until_idle(machine)
            charged = machine.run(f"grep ^file' ' /sys/fs/cgroup/$(systemctl show -P ControlGroup {UNIT})/memory.stat")
            assert int(charged.split()[1]) > 200 * MIB, "the model is not charged to its unit"
            before = _granted(machine, PROPERTIES.get(how, "MemoryLow"))
            _protect(machine, how, mglru)
            machine.run("truncate -s 1G /var/tmp/other")
            machine.write("/root/hog.py", HOG)
            limit = "-p MemoryHigh=200M" if how == "MemoryHigh" else ""
            machine.run(f"systemd-run -q --wait --unit=hog {limit} python3 /root/hog.py", 300)
            left[how] = resident_bytes(machine)
            print(f"   {left[how] / MIB:.0f} MiB of the model are left in memory")
        if how in PROPERTIES:
            with step("stopped: every setting as before, the protection too"):
                machine.run("systemctl stop moetuned")
                assert _granted(machine, PROPERTIES[how]) == before
                machine.run(f"echo y >{LRU}; systemctl stop {UNIT}; {SAME}")
        machine.end()
    # The classic LRU may leave an unprotected model alone, too, as what was used more than once.
    with step("what is said to hold keeps the model in memory, and with the multi-gen LRU most is lost without it"):
        for how in ("memory_min", "MemoryHigh") if mglru else ("memory_low", "memory_min"):
            assert left[how] > 200 * MIB
            assert not mglru or left[how] > 4 * left["nothing"]


@pytest.mark.skipif(not FULL, reason="takes minutes: FULL=1")
def test_kept_memory_is_given_up_before_a_program_is_killed(
    start: Start, serving: Path, models: Path, step: Step
) -> None:
    machine = start(serving, models)
    pid = view(machine)["pid"]
    with step("what is kept counts as what cannot be given back, which MemAvailable does not know"):
        configure(machine, backend={"memory_min": "300MiB"})
        machine.run("systemctl reload moetuned")
        machine.until("moetunectl status --json | grep -q '\"kept_bytes\":[0-9]\\{9\\}'", 60)
        memory = view(machine)["memory"]
        available = int(machine.run("grep MemAvailable /proc/meminfo").split()[1]) * 1024
        assert memory["scope"] == "machine"
        assert memory["headroom_bytes"] + memory["kept_bytes"] // 2 < available
    with step("a program grows into what is kept: it is given up, and nobody is killed"):
        machine.write("/root/grows.py", GROWS)
        mebibytes = (memory["headroom_bytes"] + memory["kept_bytes"] // 2) // MIB
        machine.run(f"systemd-run -q --unit=grows python3 /root/grows.py {mebibytes}")
        machine.until("test -e /run/grown", 300)
        assert _granted(machine, "MemoryMin")[0] == "0"
        machine.run("systemctl is-active grows")
        assert "oom_kill 0" in machine.run("cat /proc/vmstat")
        said = machine.run("moetunectl status --json")
        assert "memory was near its limit" in said
        assert "memory_near_limit" in said
        assert view(machine)["pid"] == pid
    with step("stopped: every setting as before"):
        machine.run(f"systemctl stop grows moetuned {UNIT}; {SAME}")


def _protect(machine: Machine, how: str, mglru: bool) -> None:
    if how == "memory_low":
        configure(machine, backend={"memory_low": "400MiB"})
        machine.run("systemctl reload moetuned")
        machine.until(f'[ "$(systemctl show -P MemoryLow {UNIT})" = {400 * MIB} ]')
        assert ("it gives way" in machine.run("moetunectl tune plan --json")) == mglru
    elif how == "memory_min":
        configure(machine, backend={"memory_min": "1200MiB"})
        machine.run("systemctl reload moetuned")
        machine.until("moetunectl status --json | grep -q 'may be: the kernel kills programs'")
        assert _granted(machine, "MemoryMin")[0] == "0", "more than the machine has is refused"
        configure(machine, backend={"memory_min": "400MiB"})
        machine.run("systemctl reload moetuned")
        machine.until(f'[ "$(systemctl show -P MemoryMin {UNIT})" = {400 * MIB} ]')
        # The daemon's own 40 MiB beside it.
        assert _granted(machine, "MemoryMin") == [str(400 * MIB), str(440 * MIB)]
        machine.run("moetunectl tune verify")


def _granted(machine: Machine, name: str) -> list[str]:
    """What systemd grants the backend's unit and its slice, in bytes."""
    return [machine.run(f"systemctl show -P {name} {unit}").strip() for unit in (UNIT, "moetuned.slice")]


def test_thrash_is_seen_and_its_hook_runs(start: Start, serving: Path, models: Path, step: Step) -> None:
    thrash(start(serving, models), step)


def test_reboot(start: Start, serving: Path, models: Path, step: Step) -> None:
    machine = start(serving, models)
    with step("after a reboot both are up, the kernel is tuned, and the check is OK"):
        machine.reboot()
        until_idle(machine)
        machine.run(f"systemctl is-active moetuned {UNIT} && moetunectl tune verify && moetunectl check")
        assert machine.run("systemctl --failed --no-legend") == ""
    with step("a stop gives back what this boot began with"):
        machine.run(f"systemctl stop moetuned && {SAME}")


@pytest.mark.skipif(not FULL, reason="learning takes minutes: FULL=1")
def test_heat_over_a_reboot(start: Start, serving: Path, models: Path, step: Step) -> None:
    machine = start(serving, models)
    with step("what of the experts is used is learned and kept"):
        configure(machine, warm={"enabled": True})
        machine.run(
            f"systemctl enable {UNIT}; systemctl set-property {UNIT} MemoryMax=300M;"
            # What is in memory already would not count for the unit, and the model would fit.
            f" systemctl stop {UNIT}; echo 3 >/proc/sys/vm/drop_caches; systemctl restart moetuned {UNIT}",
            180,
        )
        until_idle(machine)
        ask = f"{PYTHON} -m moetuned.simulator ask http://127.0.0.1:8080 --topic 1 -n 4 --tokens 24"
        machine.run(ask, 300)
        # What of the model is in memory is paged out once, to see what comes back. Each look has a budget, and takes long on such a processor.
        machine.until("journalctl -b -u moetuned | grep -q 'experts that nobody is known to use'", 300)
        machine.run(ask, 300)
        machine.until("ls /var/lib/moetuned/heat/*", 600)
    with step("a reboot: both units are up, and the model is warmed with what was learned"):
        machine.reboot()
        until_idle(machine)
        machine.until("""moetunectl status --json | grep -Eq '"state": ?"done"'""", 240)
        detail = view(machine)["warm"]["detail"]
        print(f"   {detail}")
        assert "of experts that were used" in detail
