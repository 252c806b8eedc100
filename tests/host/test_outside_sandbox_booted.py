"""Programs run from a restricted service of a real systemd, as they would run without its restrictions."""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import pytest
from fakes.booted_systemd import PYTHON_PATH, BootedSystemd

pytestmark = pytest.mark.systemd

DRIVER = """
import json, os, sys, logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
from moetuned.host.bounded_program import run_bounded
from moetuned.host.run_identity import Identity
calls = json.load(open("/run/calls.json"))
answers = []
for call in calls:
    identity = None if call.get("identity") is None else Identity(*call["identity"][:2], tuple(call["identity"][2]))
    try:
        end = run_bounded(call["command"], call.get("environment", {}), call.get("seconds", 60.0), call.get("payload", "").encode(),
                          call.get("limit", 65536), call.get("apart", False), identity, outside=True)
        answers.append([end.exit_code, end.timed_out, end.output.decode(), end.cut, end.errors.decode()])
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
answers.append(sorted(os.listdir("/run/moetuned/outside")) if os.path.isdir("/run/moetuned/outside") else [])
json.dump(answers, open("/run/answers.json", "w"))
"""
UNIT = f"""\
[Service]
Type=oneshot
Environment="PYTHONPATH={PYTHON_PATH}"
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_DAC_OVERRIDE
SystemCallFilter=~@mount
ExecStart={sys.executable} /run/driver.py
"""


def ran(machine: BootedSystemd, *calls: dict[str, Any]) -> list[Any]:
    """What a restricted service has of these calls, and what is left behind at the end."""
    machine.start_bus()
    machine.write("/run/driver.py", DRIVER)
    machine.write("/run/calls.json", json.dumps(calls))
    machine.write("/run/systemd/system/restricted.service", UNIT)
    machine.systemctl("daemon-reload")
    machine.path("/run/answers.json").unlink(missing_ok=True)
    machine.systemctl("start", "restricted.service")
    return list(json.loads(machine.path("/run/answers.json").read_text()))


def sh(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["/bin/sh", "-c", script], "environment": {"PATH": "/usr/bin:/bin"}, **more}


def test_it_has_what_the_service_has_not_and_ends_as_it_does(booted_systemd: BootedSystemd) -> None:
    *answers, left = ran(
        booted_systemd,
        sh("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; cat /proc/self/oom_score_adj; umask; pwd"),
        sh("exit 7"),
        sh("exit 203"),
        sh("kill -9 $$"),
        sh("kill -15 $$"),
        sh("cat; echo error >&2", payload="in" * 50000, apart=True, limit=1000),
        {"command": ["/bin/absent"]},
        {"command": ["/run/driver.py"]},
        sh("id -u; id -G", identity=[65534, 65534, [100, 4]]),
    )
    assert answers[0] == [0, False, "NoNewPrivs:\t0\nSeccomp:\t0\n0\n0022\n/\n", False, ""]
    assert [answer[0] for answer in answers[1:5]] == [7, 203, None, None]
    assert answers[5] == [0, False, ("in" * 50000)[:1000], True, "error\n"]
    assert answers[6].startswith("FileNotFoundError")
    assert answers[7].startswith("PermissionError")
    assert answers[8][2].split() == ["65534", "65534", "4", "100"]
    assert left == []


def test_a_program_without_its_interpreter_ends_with_systemds_code_for_that(booted_systemd: BootedSystemd) -> None:
    booted_systemd.write("/opt/odd", "#!/nowhere/sh\n", 0o755)
    answer, _ = ran(booted_systemd, {"command": ["/opt/odd"]})
    assert answer == [203, False, "", False, ""]


def test_arguments_and_variables_arrive_to_the_letter(booted_systemd: BootedSystemd) -> None:
    odd = [
        "$HOME",
        "${PATH}",
        "$$",
        "%n %%",
        "a b",
        "q\"'`\\",
        "",
        "-x",
        "line\nbreak\t",
        "ä€",
        "\x01\x7f",
        "# ;",
        "\\n",
    ]
    generator = random.Random(5)
    odd += ["".join(generator.choices("$\"'`\\ \n\t\r%#;={}aä\x1b", k=12)) for _ in range(40)]
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    variables = {f"V{number}": value for number, value in enumerate(odd)} | {"HOME": "/h", "PATH": "/usr/bin"}
    call = {"command": [sys.executable, "-I", "-S", "-c", code, *odd], "environment": variables}
    answer, _ = ran(booted_systemd, call)
    arguments, environment = json.loads(answer[2])
    assert arguments == odd
    assert environment.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"  # Python's own
    assert environment == variables


def test_at_its_deadline_all_of_it_is_ended(booted_systemd: BootedSystemd) -> None:
    script = "trap '' TERM; sleep 1001 & trap '' TERM; sleep 1001; sleep 1001"
    answer, left = ran(booted_systemd, sh(script, seconds=0.5))
    assert answer[:2] == [None, True]
    assert left == []
    assert booted_systemd.run("pgrep", "-f", "sleep 1001", check=False).stdout == ""


def test_what_it_leaves_running_stays(booted_systemd: BootedSystemd) -> None:
    answer, _ = ran(booted_systemd, sh("sleep 1002 & echo done"))
    assert answer[:3] == [0, False, "done\n"]
    assert booted_systemd.run("pkill", "-f", "sleep 1002", check=False).returncode == 0


def test_where_systemd_does_not_start_it_it_runs_as_it_is_and_that_is_said_once(booted_systemd: BootedSystemd) -> None:
    call = {**sh("grep NoNewPrivs: /proc/self/status"), "environment": {"PATH": "/usr/bin", "A-B": "1"}}
    *answers, _ = ran(booted_systemd, call, call)
    assert [answer[2] for answer in answers] == ["NoNewPrivs:\t1\n"] * 2
    said = booted_systemd.journal("restricted.service")
    assert said.count("a variable has a name that systemd does not take") == 1


def test_it_runs_once_also_where_systemd_run_is_killed(booted_systemd: BootedSystemd) -> None:
    """As the OOM killer may, on the day that a backend has to be restarted."""
    kill = "echo once >>/run/ran; pkill -KILL -x systemd-run; sleep 1; echo done; exit 4"
    answer, left = ran(booted_systemd, sh(kill))
    assert answer == [4, False, "done\n", False, ""]
    assert booted_systemd.path("/run/ran").read_text() == "once\n"
    assert left == []


def test_it_ends_with_the_service_that_started_it(booted_systemd: BootedSystemd) -> None:
    booted_systemd.start_bus()
    booted_systemd.write("/run/driver.py", DRIVER)
    booted_systemd.write("/run/calls.json", json.dumps([sh("sleep 1003; echo $?")]))
    booted_systemd.write(
        "/run/systemd/system/restricted.service", UNIT.replace("oneshot", "exec") + "KillMode=process\n"
    )
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", "restricted.service")
    running = ("pgrep", "-f", "sleep 1003")
    limit = time.monotonic() + 60
    while booted_systemd.run(*running, check=False).returncode != 0:
        assert time.monotonic() < limit
    booted_systemd.systemctl("stop", "restricted.service")
    while booted_systemd.run(*running, check=False).returncode == 0:
        assert time.monotonic() < limit


def test_a_service_that_stops_still_gets_what_it_needs_run(booted_systemd: BootedSystemd) -> None:
    """systemd starts nothing that is ordered before or after a unit for as long as that one stops."""
    until_stop = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\nprint('ready', flush=True)\n"
    )
    until_stop += "signal.sigwait({signal.SIGTERM})\n"
    booted_systemd.start_bus()
    booted_systemd.path("/run/answers.json").unlink(missing_ok=True)
    booted_systemd.write("/run/driver.py", until_stop + DRIVER)
    booted_systemd.write("/run/calls.json", json.dumps([sh("echo swapped off", seconds=20.0)]))
    booted_systemd.write(
        "/run/systemd/system/restricted.service", UNIT.replace("oneshot", "exec") + "KillMode=process\n"
    )
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", "restricted.service")
    limit = time.monotonic() + 60
    while "ready" not in booted_systemd.journal("restricted.service"):
        assert time.monotonic() < limit
    booted_systemd.systemctl("stop", "restricted.service")
    answer = json.loads(booted_systemd.path("/run/answers.json").read_text())[0]
    assert answer[:3] == [0, False, "swapped off\n"]


def test_what_killed_runs_have_left_is_removed_and_what_runs_is_not(booted_systemd: BootedSystemd) -> None:
    """As a daemon that starts does it, from within its unit."""
    booted_systemd.start_bus()
    names = [f"moetuned-run-{number:016x}" for number in range(3)]
    for name in names:
        booted_systemd.write(f"/run/moetuned/outside/{name}/environment", "A=b\n")
    booted_systemd.write(f"/run/systemd/system/{names[1]}.service", "[Service]\nExecStart=/bin/sleep 600\n")
    booted_systemd.write(f"/run/systemd/system/{names[2]}.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
    booted_systemd.write(
        "/run/driver.py",
        "import moetuned.host.outside_remains as remains\n"
        "remains.YOUNG_SECONDS = 0.0\nopen('/run/swept', 'w').write(str(remains.sweep()))\n",
    )
    booted_systemd.write("/run/systemd/system/restricted.service", UNIT)
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", f"{names[1]}.service")
    booted_systemd.systemctl("--no-block", "start", f"{names[2]}.service")
    booted_systemd.systemctl("start", "restricted.service")
    assert int(booted_systemd.path("/run/swept").read_text()) >= 2, "and what another test has left by killing"
    assert [path.name for path in booted_systemd.path("/run/moetuned/outside").iterdir()] == [names[1]]


SWAPS_OFF = """
import json, os, signal
from moetuned.host import swap_devices
swap_devices._START = '''
import sys, time
if sys.argv[2] != "1":
    print(1)
else:
    open("/run/begun", "w").close()
    time.sleep(2.5)
    open("/run/ended", "w").close()
    print(16 if sys.argv[3] == "/busy" else 0)
'''
said, killed = [], []
def watch():
    for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split():
        if os.path.exists("/run/begun") and open(f"/proc/{pid}/comm").read() == "systemd-run\\n" and pid not in killed:
            os.kill(int(pid), signal.SIGKILL)
            killed.append(pid)
for path in ("/free", "/busy"):
    for left in ("/run/begun", "/run/ended"):
        if os.path.exists(left):
            os.unlink(left)
    try:
        swap_devices.swap_off_slowly(path, watch)
        said.append([path, 0, os.path.exists("/run/ended")])
    except OSError as error:
        said.append([path, error.errno, os.path.exists("/run/ended")])
json.dump([said, len(killed)], open("/run/said.json", "w"))
"""


def test_a_swap_off_whose_systemd_run_is_killed_is_waited_for(booted_systemd: BootedSystemd) -> None:
    """With a program in place of swapoff(2): the machine's swap is not the test's."""
    booted_systemd.start_bus()
    booted_systemd.write("/run/driver.py", SWAPS_OFF)
    booted_systemd.write("/run/systemd/system/restricted.service", UNIT)
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", "restricted.service")
    said = json.loads(booted_systemd.path("/run/said.json").read_text())
    assert said == [[["/free", 0, True], ["/busy", 16, True]], 2]
