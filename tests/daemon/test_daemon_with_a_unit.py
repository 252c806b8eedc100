"""The daemon with a backend that is a unit of a real systemd: adopted, relieved, stopped by its owner, crashed, left running."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.booted_systemd import PYTHON_PATH, BootedSystemd, booted
from fakes.own_cgroup import own_cgroup
from test_daemon_with_backends import MIB, Hog

pytestmark = pytest.mark.systemd

LIMIT_BYTES = 640 * MIB
LIMIT_SECONDS = 90.0
MODEL = "/var/lib/model.gguf"
CGROUP = "/run/memory-cgroup"
SERVE = f"{sys.executable} -m moetuned.simulator serve --model {MODEL} --port 8080 --metrics"
ENVIRONMENT = f'Environment="PYTHONPATH={PYTHON_PATH}"'
UNIT = f"[Service]\nType=exec\n{ENVIRONMENT}\n"
DAEMON = f"""\
[Service]
Type=notify
{ENVIRONMENT}
ExecStart={sys.executable} -m moetuned.daemon run
KillMode=process
StateDirectory=moetuned
RuntimeDirectory=moetuned
RuntimeDirectoryPreserve=yes
"""


class House:
    """A machine with a daemon; all that runs in it is in one memory cgroup."""

    def __init__(self, machine: BootedSystemd, cgroup: str) -> None:
        self.machine, self.cgroup = machine, cgroup

    def make(self, name: str, text: str) -> None:
        self.machine.write(f"/etc/systemd/system/{name}.service", text)
        self.machine.systemctl("daemon-reload")

    def configure(self, **more: Any) -> None:
        """Of the daemon, for the unit llama.service."""
        entry = {
            "name": "llama",
            "url": "http://127.0.0.1:8080",
            "context": {"preferred": 24576, "minimum": 1024},
            "supervise": {"by": "systemd", "unit": "llama.service"},
        }
        config = {
            "api": {"listen": False},
            "watch": {"interval": "200ms", "idle_interval": "200ms", "discover": False},
            "warm": {"enabled": False},
            "relief": {"mode": "act", "cool_down": "10m", **more.pop("relief", {})},
            "backends": [{**entry, **more}],
        }
        self.machine.write("/etc/moetuned/moetuned.yaml", yaml.safe_dump(config))

    def pid(self, unit: str = "llama") -> int:
        return int(self.machine.show(f"{unit}.service", "MainPID"))

    def argv(self, pid: int) -> list[str]:
        return self.machine.path(f"/proc/{pid}/cmdline").read_text().removesuffix("\0").split("\0")

    def context(self) -> int:
        argv = self.argv(self.pid())
        return int(argv[argv.index("-c") + 1])

    def ask(self, *arguments: str) -> Any:
        """What moetunectl prints, as JSON; None while the daemon does not answer."""
        done = self.machine.moetunectl(*arguments, "--json", check=False)
        return json.loads(done.stdout) if done.returncode in (0, 1) and done.stdout else None

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        limit = time.monotonic() + LIMIT_SECONDS
        while not (found := condition()):
            assert time.monotonic() < limit, f"it never came to this: {what}\n{self.log()}"
        return found

    def view(self) -> dict[str, Any]:
        status = self.ask("status")
        views = [] if status is None else [each for each in status["backends"] if each["name"] == "llama"]
        return views[0] if views else {}

    def until_idle(self) -> dict[str, Any]:
        def idle() -> dict[str, Any] | None:
            view = self.view()
            known = view and view["verdict"]["phase"] == "idle" and view["pid"] == self.pid()
            # Before its command line is read its slots' contexts stand in.
            return view if known and view["context"]["now"] == self.context() else None

        return self.until(idle, "idle")

    def events(self) -> list[str]:
        done = self.machine.moetunectl("events", "--json", check=False)
        return [json.loads(line)["name"] for line in done.stdout.splitlines()]

    def messages(self) -> str:
        return self.machine.moetunectl("events", check=False).stdout

    def log(self) -> str:
        return self.machine.journal("moetuned.service")


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[BootedSystemd, str]]:
    """Its memory cgroup is one of version 1, since a machine with version 2 has none to give to the namespaces of a test."""
    with own_cgroup() as above:
        if not os.path.exists(f"{above}/memory.limit_in_bytes"):
            pytest.skip("needs memory cgroups of version 1")
        with booted(above) as booted_systemd:
            cgroup = f"{above}/limited"
            os.mkdir(cgroup)
            Path(cgroup, "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
            Path(cgroup, "cgroup.procs").write_text(str(booted_systemd.pid))
            booted_systemd.run("mkdir", CGROUP)
            booted_systemd.run("mount", "-t", "cgroup", "-o", "memory", "memory", CGROUP)
            booted_systemd.run(sys.executable, "-m", "moetuned.simulator", "make-model", MODEL, "--size", "64M")
            yield booted_systemd, cgroup
        os.rmdir(cgroup)


@pytest.fixture
def house(machine: tuple[BootedSystemd, str]) -> Iterator[House]:
    computer, cgroup = machine
    before = {path.name for path in computer.path("/etc/systemd/system").iterdir()}
    house = House(computer, cgroup)
    house.make("moetuned", DAEMON)
    house.make("llama", UNIT + f"ExecStart={SERVE} -c 24576 --cache-ram 0\n")
    yield house
    for path in computer.path("/etc/systemd/system").iterdir():
        if path.name in before:
            continue
        if path.suffix == ".service":
            computer.systemctl("kill", "--signal=SIGKILL", path.name, check=False)
            computer.systemctl("stop", path.name, check=False)
            computer.systemctl("reset-failed", path.name, check=False)
            path.unlink()
        else:
            computer.run("rm", "-r", f"/etc/systemd/system/{path.name}")
    computer.run("rm", "-rf", "/run/moetuned", "/var/lib/moetuned", "/etc/moetuned")
    computer.systemctl("daemon-reload")


@contextlib.contextmanager
def squeezed(house: House) -> Iterator[None]:
    hog = Hog(house.cgroup, LIMIT_BYTES)
    try:
        hog.leave(40 * MIB)
        yield
    finally:
        hog.process.kill()
        hog.process.communicate()


def adopted(house: House) -> None:
    house.machine.systemctl("start", "llama.service")
    house.machine.moetunectl("backend", "adopt", "llama", "--write")
    house.configure()
    house.machine.systemctl("start", "moetuned.service")


def test_an_adopted_unit_is_relieved_and_goes_on_without_the_daemon(house: House) -> None:
    adopted(house)
    first = house.until_idle()
    assert first["context"]["now"] == 24576
    assert house.until(lambda: house.view()["cgroup"], "its cgroup is known")
    with squeezed(house):
        house.until(lambda: "backend_restarted" in house.events(), "restarted")
    after = house.until_idle()
    assert after["pid"] != first["pid"]
    assert 1024 <= house.context() == after["context"]["now"] < 24576
    assert "backend_down" not in house.events()
    house.machine.systemctl("stop", "moetuned.service")
    assert house.pid() == after["pid"]


def test_one_that_does_not_end_is_killed_and_the_next_one_is_not(house: House) -> None:
    house.make("llama", UNIT + f"ExecStart={SERVE} -c 24576 --cache-ram 0 --simulate-ignore-sigterm\n")
    adopted(house)
    first = house.until_idle()
    house.machine.moetunectl("backend", "restart", "llama", "--context", "8192", "--now", "--yes")
    house.until(lambda: "backend_restarted" in house.events(), "restarted")
    assert house.until_idle()["context"]["now"] == house.context() == 8192
    assert house.pid() != first["pid"]
    assert "backend_down" not in house.events()
    assert "SIGKILL" in house.machine.journal("llama.service") or "status=9/KILL" in house.machine.journal(
        "llama.service"
    )


def test_a_daemon_that_is_killed_in_the_middle_leaves_one_restart_and_its_cool_down(house: House) -> None:
    adopted(house)
    first = house.until_idle()
    house.until(lambda: house.view()["cgroup"], "its cgroup is known")
    with squeezed(house):
        house.until(lambda: "backend_restarting" in house.events(), "it begins")
        house.machine.systemctl("kill", "--signal=SIGKILL", "--kill-whom=main", "moetuned.service")
        house.until(lambda: house.pid() not in (0, first["pid"]), "systemd carries it out")
    second = house.pid()
    house.machine.systemctl("reset-failed", "moetuned.service", check=False)
    house.machine.systemctl("start", "moetuned.service")
    after = house.until_idle()
    assert after["pid"] == second
    assert house.context() < 24576
    record = json.loads(house.machine.path("/run/moetuned/backends/llama.json").read_text())
    assert len(record["relief_restarts_at"]) == 1
    with squeezed(house):
        house.until(lambda: house.view()["verdict"]["memory"] != "ok", "near its limit again")
        plan = house.machine.moetunectl("relief", "plan", "llama", check=False).stdout
        assert "cool-down" in plan or "least" in plan
    assert house.pid() == second


def test_a_unit_and_its_process_are_one_backend_from_the_first_look_on(house: House) -> None:
    """Found by a search before systemd has told whose it is: at the daemon's start, and when the unit starts after a while."""
    adopted(house)
    house.until_idle()
    house.configure()
    config = house.machine.path("/etc/moetuned/moetuned.yaml")
    config.write_text(config.read_text().replace("discover: false", "discover: true"))
    for _ in range(3):
        house.machine.systemctl("stop", "moetuned.service")
        house.machine.path("/run/moetuned/backends/llama.json").unlink()  # or it is known from the daemon before
        house.machine.systemctl("start", "moetuned.service")
        assert [each["name"] for each in house.until(lambda: house.ask("status"), "an answer")["backends"]] == ["llama"]
        house.until_idle()
    house.machine.systemctl("restart", "llama.service")
    house.until_idle()
    assert "llama: is process" in house.log()
    assert "simulator-8080: is process" not in house.log()
    assert "llama-server-8080: is process" not in house.log()


def test_its_owner_stops_it_and_it_crashes_and_its_files_change(house: House) -> None:
    text = UNIT + f"Restart=on-failure\nRestartSec=1s\nExecStart={SERVE} -c 24576 --cache-ram 0\n"
    house.make("llama", text)
    adopted(house)
    first = house.until_idle()
    assert "llama" in house.machine.moetunectl("backend", "list").stdout
    os.kill(_outside(house, first["pid"]), signal.SIGSEGV)
    second = house.until_idle()
    assert second["pid"] != first["pid"]
    assert house.events()[-2:] == ["backend_down", "backend_recovered"]
    assert "llama was ended by SIGSEGV" in house.messages()

    house.machine.moetunectl("backend", "pause", "llama")
    house.until(lambda: "paused by hand" in house.view()["sentence"], "paused")
    assert house.machine.path(f"/proc/{second['pid']}/stat").read_text().split()[2] == "T"
    house.machine.moetunectl("backend", "resume", "llama")
    house.until_idle()

    house.machine.systemctl("restart", "llama.service")
    third = house.until_idle()
    assert third["pid"] != second["pid"]
    assert house.events().count("backend_down") == 1, "that somebody has it restarted is no crash"

    house.machine.systemctl("stop", "llama.service")
    house.until(
        lambda: "leaves it to the unit llama.service" in house.view().get("sentence", ""), "its absence is told"
    )
    assert house.events()[-1] == "backend_recovered"
    refused = house.machine.moetunectl("backend", "restart", "llama", "--yes", check=False)
    assert refused.returncode != 0
    assert house.pid() == 0

    house.machine.systemctl("start", "llama.service")
    house.machine.write("/etc/systemd/system/llama.service", text + "# later\n")
    house.machine.systemctl("restart", "moetuned.service")
    house.until_idle()
    shown = house.machine.moetunectl("backend", "show", "llama").stdout
    assert "run systemctl daemon-reload" in " ".join(shown.split())
    house.machine.systemctl("daemon-reload")

    house.machine.systemctl("stop", "moetuned.service")
    house.machine.moetunectl("backend", "adopt", "--undo", "llama")
    assert not house.machine.path("/etc/systemd/system/llama.service.d").exists()
    assert not house.machine.path("/run/moetuned/backends/llama.env").exists()


def test_a_restart_by_its_owner_that_takes_its_time_is_none_and_one_that_ends_in_nothing_is_told(house: House) -> None:
    house.make("llama", UNIT + f"ExecStartPre=/bin/sleep 1\nExecStart={SERVE} -c 24576 --cache-ram 0\n")
    house.machine.systemctl("start", "llama.service")
    house.configure()
    house.machine.systemctl("start", "moetuned.service")
    first = house.until_idle()
    house.machine.systemctl("restart", "llama.service")
    assert house.until_idle()["pid"] != first["pid"]
    assert "backend_down" not in house.events()
    # It fails while nobody looks: after the end of the one before was seen, and before its process is known.
    house.make("llama", UNIT + "ExecStartPre=/bin/sleep 1\nExecStart=/bin/false\n")
    house.machine.systemctl("restart", "llama.service", check=False)
    house.until(lambda: "backend_down" in house.events(), "that it does not come back is told")
    assert "llama exited with code 1, after somebody had it restarted" in house.messages()


def _outside(house: House, pid: int) -> int:
    """The pid, seen from here, of a process of the machine."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != house.machine.pid:
            with contextlib.suppress(OSError):
                words = next(
                    line for line in Path(f"/proc/{entry}/status").read_text().splitlines() if line.startswith("NSpid")
                )
                same = os.readlink(f"/proc/{entry}/ns/pid") == os.readlink(f"/proc/{house.machine.pid}/ns/pid")
                if same and int(words.split()[-1]) == pid:
                    return int(entry)
    raise AssertionError(f"there is no process {pid}")


def test_one_whose_restart_is_refused_runs_as_before_and_that_ends_the_restart(house: House) -> None:
    adopted(house)
    first = house.until_idle()
    dropped = house.machine.path("/run/systemd/system/llama.service.d/refuse.conf")
    dropped.parent.mkdir(parents=True)
    dropped.write_text("[Unit]\nRefuseManualStart=yes\nRefuseManualStop=yes\n")
    house.machine.systemctl("daemon-reload")
    try:
        house.machine.moetunectl("backend", "restart", "llama", "--context", "8192", "--now", "--yes", check=False)
        house.until(lambda: "backend_not_restarted" in house.events(), "refused")
        assert house.events() == ["backend_restarting", "backend_not_restarted"]
        assert house.pid() == first["pid"]
    finally:
        dropped.unlink()
        dropped.parent.rmdir()
        house.machine.systemctl("daemon-reload")
