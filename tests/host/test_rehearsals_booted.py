"""The self-test inside sandboxes of a real systemd: where one is too tight it says the right no, and the action itself fails there, too."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.booted_systemd import PYTHON_PATH, BootedSystemd, booted

pytestmark = pytest.mark.systemd

DRIVER = """
import json, os, signal, sys
from moetuned.host import rehearsals
from moetuned.host.rehearsing import run
from moetuned.schema.capability import Action, BackendNeeds, Need, RehearsalFacts

name, subject, other_user, action = json.load(open('/etc/asked.json'))
one = rehearsals.load(name)
facts = RehearsalFacts(state_directory="/var/lib", warms=True, protects=True, pauses=True)
need = Need(subject, (Action.WARM,), "glm", other_user)
(found,) = run([(name, need, lambda: one.rehearse(need, facts))], 10.0)

def nobody():
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
        os.write(ready[1], b"1")
        while True:
            signal.pause()
    assert os.read(ready[0], 1)
    return child

ready = os.pipe()
told, said = os.pipe()
child = os.fork()
if child == 0:
    try:
        exec(action)
        os.write(said, b"done")
    except Exception as error:
        os.write(said, f"{type(error).__name__}: {error}".encode())
    os._exit(0)
os.close(said)
_, status = os.waitpid(child, 0)
text = os.read(told, 1000).decode() or f"signal {os.WTERMSIG(status)}"
print(json.dumps({"answer": found.answer, "why": found.why, "action": text}))
"""
JOIN = "from moetuned.host import inside_cgroup; inside_cgroup.join('/sys/fs/cgroup/system.slice')"
DEPTH = "/sys/fs/cgroup/system.slice/cgroup.max.depth"
PAGE_OUT = """
from moetuned.host.page_out import Advice, process_madvise
pid = nobody()
start = int(open(f"/proc/{pid}/maps").readline().split("-")[0], 16)
process_madvise(os.pidfd_open(pid), ((start, 4096),), Advice.PAGEOUT)
"""
PAUSE = """
from moetuned.host.processes import ProcessHandle, identify
assert ProcessHandle(identify(nobody())).send(signal.SIGSTOP)
"""
READ_IO = "open(f'/proc/{nobody()}/io').read()"
SWAP_ON = """
from moetuned.host.swap_devices import swap_on
try:
    swap_on('/nothing', None)
except FileNotFoundError:
    pass
"""
CONNECT = """
import socket
socket.create_server(("127.0.0.1", 0)).close()
"""
ASK = """
from moetuned.host.systemd_unit import unit_status
unit_status('systemd-journald.service')
"""
WRITE = "open('/var/lib/kept', 'w').write('x'); os.remove('/var/lib/kept')"
RUN = "import subprocess; subprocess.run(['/bin/true'], check=True)"
LOCK = """
from moetuned.host.locked_pages import LockedRange
LockedRange(os.open(sys.executable, os.O_RDONLY), 0, 4096)
"""

CASES = {
    "cgroups that are read-only, to enter one": (
        "ProtectControlGroups=yes", "enter_cgroup", "/sys/fs/cgroup/system.slice", False, JOIN,
    ),
    "cgroups that are read-only, to set a limit": (
        "ProtectControlGroups=yes", "setting_files", DEPTH, False, f"open({DEPTH!r}, 'w').write('max')",
    ),
    "nothing that lets it see others' memory, to page out": (
        "CapabilityBoundingSet=~CAP_SYS_PTRACE CAP_PERFMON CAP_SYS_ADMIN", "page_out", "process_madvise", True, PAGE_OUT,
    ),
    "no CAP_SYS_NICE, to page out": (
        "CapabilityBoundingSet=~CAP_SYS_NICE", "page_out", "process_madvise", True, PAGE_OUT,
    ),
    "no CAP_SYS_PTRACE, to see what it reads": (
        "CapabilityBoundingSet=~CAP_SYS_PTRACE", "other_processes", "/proc/PID/io", True, READ_IO,
    ),
    "no CAP_KILL, to pause": ("CapabilityBoundingSet=~CAP_KILL", "signals", "pidfd_send_signal", True, PAUSE),
    "no call to signal, to pause": (
        "SystemCallFilter=~pidfd_send_signal", "signals", "pidfd_send_signal", False, PAUSE,
    ),
    "no CAP_SYS_ADMIN, to swap on": ("CapabilityBoundingSet=~CAP_SYS_ADMIN", "swap_calls", "swapon", False, SWAP_ON),
    "a filter that kills, to swap on": ("SystemCallFilter=~@swap", "swap_calls", "swapon", False, SWAP_ON),
    "a filter that refuses, to swap on": (
        "SystemCallFilter=~@swap:EPERM", "swap_calls", "swapon", False, SWAP_ON,
    ),
    "no AF_INET, to ask": ("RestrictAddressFamilies=AF_UNIX", "sockets", "AF_INET", False, CONNECT),
    "no AF_UNIX, to restart a unit": ("RestrictAddressFamilies=AF_INET", "service_manager", "x.service", False, ASK),
    "a strict file system, to keep": ("ProtectSystem=strict", "own_directories", "/var/lib", False, WRITE),
    "programs that may not run": ("NoExecPaths=/usr/bin/true", "programs", "/bin/true", False, RUN),
    "nothing may be locked": (
        "LimitMEMLOCK=0\nCapabilityBoundingSet=~CAP_IPC_LOCK CAP_SYS_RESOURCE", "lock_memory", "mlock2", False, LOCK,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> Iterator[BootedSystemd]:
    with booted() as found:
        found.write("/etc/driver.py", DRIVER)
        yield found


def inside(machine: BootedSystemd, properties: str, *asked: Any) -> dict[str, str]:
    """What the driver says inside a service with these properties."""
    machine.write("/etc/asked.json", json.dumps(asked))
    machine.write(
        "/etc/systemd/system/driver.service",
        f"""\
[Service]
Type=oneshot
Environment=PYTHONPATH={PYTHON_PATH}
StandardOutput=truncate:/run/said
ExecStart={sys.executable} /etc/driver.py
{properties}
""",
    )
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "driver.service", check=False)
    text = machine.path("/run/said").read_text()
    assert text, machine.journal("driver.service")
    answer: dict[str, str] = json.loads(text.splitlines()[-1])  # a warning may come before
    return answer


@pytest.mark.parametrize("case", CASES)
def test_a_sandbox_that_is_too_tight_is_a_no_and_the_action_fails(machine: BootedSystemd, case: str) -> None:
    properties, *asked = CASES[case]
    said = inside(machine, properties, *asked)
    assert said["answer"] == "no", said
    assert said["why"]
    assert said["action"] != "done", said


@pytest.mark.parametrize("case", CASES)
def test_without_the_sandbox_it_is_a_yes_and_the_action_works(machine: BootedSystemd, case: str) -> None:
    _, *asked = CASES[case]
    said = inside(machine, "", *asked)
    assert (said["answer"], said["action"]) == ("yes", "done"), said


def test_processes_that_are_hidden_from_a_user_are_not_from_a_service_of_root(machine: BootedSystemd) -> None:
    """hidepid lets the group 0 see all (proc(5), gid=), and systemd gives /proc no other group: the self-test believes the try."""
    tight = "ProtectProc=invisible\nCapabilityBoundingSet=~CAP_SYS_PTRACE"
    look = "open(f'/proc/{nobody()}/stat').read()"
    said = inside(machine, tight, "other_processes", "/proc/PID/stat", True, look)
    assert (said["answer"], said["action"]) == ("yes", "done")
    said = inside(
        machine, "ProtectProc=invisible\nUser=65534", "other_processes", "/proc/PID/stat", True, "open('/proc/1/stat')"
    )
    assert said["answer"] == "unknown"
    assert said["action"].startswith("FileNotFoundError")
