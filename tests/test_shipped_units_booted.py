"""The units as they are shipped, at a real systemd: a whole life of the service, its limits, and what runs outside of them.

A drop-in says only where the program is and has a quicker watchdog. Kernel settings are files of the test's own there (the real ones are
shared with the machine), and its control groups have no controllers, so MemoryMin= is not looked at.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.booted_systemd import UNITS_SEE, BootedSystemd

from moetuned.host.privileged_port import first_open_port

pytestmark = pytest.mark.systemd

ROOT = Path(__file__).resolve().parent.parent
SYSTEMD = ROOT / "systemd"
HOUSE = "/opt/house"
KNOB = "/proc/sys/vm/vfs_cache_pressure"
LIMIT_SECONDS = 90.0
ENVIRONMENT = f"Environment=PYTHONPATH={HOUSE}\n{UNITS_SEE}"
CTL = f'{sys.executable} -c "import sys; from moetuned.cli.main import run; sys.exit(run(sys.argv[1:]))"'
DROP_IN = f"""\
[Service]
{ENVIRONMENT}
ExecStart=
ExecStart={sys.executable} -m moetuned.daemon run
ExecStopPost=
ExecStopPost=+{CTL} tune rollback --alone
WatchdogSec=5
"""
HOOK = """\
#!/bin/sh
{ grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; cat /proc/self/cgroup; ls /tmp; } >/var/lib/hook.out
echo by-hook >/etc/by-hook
[ ! -e /run/hang ] || { sleep 1234 & sleep 1234; }
"""
# Takes what is posted and mailed to it, one file each.
TAKER = f"""\
#!{sys.executable}
import http.server, socketserver, threading

class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open("/var/lib/webhook.out", "wb").write(body)
        self.send_response(204)
        self.end_headers()

class Mail(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 here\\r\\n")
        recipients = []
        for line in self.rfile:
            word = line[:4].upper()
            if word == b"RCPT":
                recipients.append(line)
            elif word == b"DATA":
                self.wfile.write(b"354 go on\\r\\n")
                open("/var/lib/mail.out", "wb").write(b"".join([*recipients, *iter(self.rfile.readline, b".\\r\\n")]))
            self.wfile.write(b"250 ok\\r\\n")

servers = [http.server.HTTPServer(("127.0.0.1", 8090), Hook), socketserver.TCPServer(("127.0.0.1", 8025), Mail)]
for server in servers:
    threading.Thread(target=server.serve_forever).start()
"""
# The stand-in asks for no key, so this one looks at it.
LLAMA_SERVER = f"""\
#!{sys.executable}
import os, sys
words = sys.argv[1:]
at = words.index("--api-key-file")
print("the key ends with", open(words[at + 1]).read().strip()[-4:], flush=True)
del words[at : at + 2]
os.execv(sys.executable, [sys.executable, "-m", "moetuned.simulator", "serve", *words])
"""


def until(condition: Callable[[], Any], what: str) -> Any:
    limit = time.monotonic() + LIMIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < limit, f"it never came to this: {what}"
        time.sleep(0.05)
    return found


class House:
    """The service on a machine of its own."""

    def __init__(self, machine: BootedSystemd) -> None:
        self.machine = machine

    def configure(self, **config: Any) -> None:
        whole = {
            "api": {"listen": False},
            "watch": {"interval": "200ms", "discover": False},
            "warm": {"enabled": False},
        }
        self.machine.write("/etc/moetuned/moetuned.yaml", yaml.safe_dump({**whole, **config}))

    @property
    def knob(self) -> str:
        return self.machine.path(KNOB).read_text().strip()

    def show(self, name: str) -> str:
        return self.machine.show("moetuned.service", name)

    def start(self) -> None:
        self.machine.systemctl("start", "moetuned.service")

    def in_status(self, *names: str) -> list[str]:
        """Lines of the daemon's own /proc/PID/status."""
        text = self.machine.path(f"/proc/{self.show('MainPID')}/status").read_text()
        return [match[1] for name in names if (match := re.search(rf"^{name}:\s*(.*)$", text, re.MULTILINE))]

    def log(self) -> str:
        return self.machine.journal("moetuned.service")


@pytest.fixture(scope="module")
def installed(booted_systemd: BootedSystemd) -> BootedSystemd:
    machine = booted_systemd
    machine.start_bus()
    # Where users without rights may read it, too, and where no unit has mounts of its own.
    machine.path(HOUSE).mkdir(parents=True)
    subprocess.run(["cp", "-r", ROOT / "moetuned", machine.path(HOUSE)], check=True)
    for name in ("moetuned.service", "moetuned.slice"):
        machine.write(f"/etc/systemd/system/{name}", (SYSTEMD / name).read_text())
    backend = (SYSTEMD / "moetuned-backend@.service").read_text()
    machine.write("/opt/bin/llama-server", LLAMA_SERVER, 0o755)
    machine.write(
        "/etc/systemd/system/moetuned-backend@.service", backend.replace("=llama-server", "=/opt/bin/llama-server")
    )
    machine.write("/etc/systemd/system/moetuned-backend@.service.d/test.conf", f"[Service]\n{ENVIRONMENT}\n")
    machine.write("/etc/systemd/system/moetuned.service.d/test.conf", DROP_IN)
    for name in ("sysusers.d/moetuned.conf", "tmpfiles.d/moetuned-directories.conf"):
        machine.write(f"/etc/{name}", (SYSTEMD / name).read_text())
    machine.write(
        "/etc/systemd/system-preset/50-moetuned.preset", (SYSTEMD / "system-preset/50-moetuned.preset").read_text()
    )
    machine.write("/run/knob", "100\n")
    machine.run("mount", "--bind", "/run/knob", KNOB)
    machine.run("systemd-sysusers", "/etc/sysusers.d/moetuned.conf")
    machine.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/moetuned-directories.conf")
    machine.systemctl("daemon-reload")
    return machine


@pytest.fixture
def house(installed: BootedSystemd) -> Iterator[House]:
    house = House(installed)
    yield house
    installed.systemctl("stop", "moetuned.service", check=False)
    installed.systemctl("reset-failed", "moetuned.service", check=False)
    installed.run("rm", "-rf", "/etc/moetuned", "/run/hang", "/etc/by-hook", "/var/lib/hook.out")


def test_group_directories_and_preset(installed: BootedSystemd) -> None:
    assert re.search(r"^moetuned:", installed.path("/etc/group").read_text(), re.MULTILINE)
    for name, mode in (("/run/moetuned", 0o755), ("/run/moetuned/backends", 0o700), ("/var/lib/moetuned", 0o700)):
        status = installed.path(name).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (mode, 0), name
    installed.systemctl("enable", "moetuned.service")
    assert installed.systemctl("is-enabled", "moetuned.service") == "enabled"
    installed.systemctl("preset", "moetuned.service")
    assert installed.systemctl("is-enabled", "moetuned.service", check=False) == "disabled"


def test_a_whole_life(house: House) -> None:
    house.configure(tuning={"profile": "moe-offload"})
    house.start()
    assert house.show("ActiveState") == "active"
    until(lambda: house.show("StatusText"), "a status")
    assert house.show("ControlGroup").endswith("/moetuned.slice/moetuned.service")
    until(lambda: house.knob == "50", "its setting")
    status = house.machine.path("/run/moetuned/api.sock").stat()
    group = re.search(r"^moetuned:[^:]*:(\d+)", house.machine.path("/etc/group").read_text(), re.MULTILINE)
    assert group is not None
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, int(group[1]))

    pid = house.show("MainPID")
    house.configure(tuning={"profile": "moe-offload", "sysctl": {"vm.vfs_cache_pressure": 60}})
    house.machine.systemctl("reload", "moetuned.service")
    until(lambda: house.knob == "60", "the setting of the new config")
    assert house.show("MainPID") == pid

    no_restart = "/run/systemd/system/moetuned.service.d/no-restart.conf"
    house.machine.write(no_restart, "[Service]\nRestart=no\n")
    house.machine.systemctl("daemon-reload")
    house.machine.systemctl("kill", "--signal=SIGKILL", "--kill-whom=main", "moetuned.service")
    until(lambda: house.show("ActiveState") == "failed", "killed")
    assert house.knob == "100", "what ExecStopPost does"
    house.machine.path(no_restart).unlink()
    house.machine.systemctl("daemon-reload")

    house.start()
    until(lambda: house.knob == "60", "its setting once more")
    house.machine.systemctl("kill", "--signal=SIGKILL", "--kill-whom=main", "moetuned.service")
    until(lambda: house.show("NRestarts") == "1" and house.show("ActiveState") == "active", "restarted")
    house.machine.systemctl("kill", "--signal=SIGSTOP", "--kill-whom=main", "moetuned.service")
    until(lambda: house.show("NRestarts") == "2" and house.show("ActiveState") == "active", "the watchdog")
    until(lambda: house.knob == "60", "its setting after that")
    house.machine.systemctl("stop", "moetuned.service")
    assert (house.knob, house.show("Result")) == ("100", "success")


def test_a_config_that_is_wrong_is_not_tried_again(house: House) -> None:
    house.machine.write("/etc/moetuned/moetuned.yaml", "tuning: {profile: nonsense}\n")
    house.machine.systemctl("start", "moetuned.service", check=False)
    assert (house.show("ActiveState"), house.show("NRestarts")) == ("failed", "0")
    assert "nonsense" in house.log()


def test_the_limits_are_in_force(house: House) -> None:
    house.configure()
    house.start()
    assert house.in_status("NoNewPrivs", "Seccomp") == ["1", "2"]
    numbers = {"CAP_DAC_OVERRIDE": 1, "CAP_DAC_READ_SEARCH": 2, "CAP_FOWNER": 3, "CAP_KILL": 5, "CAP_SYS_PTRACE": 19,
               "CAP_SYS_NICE": 23, "CAP_SYS_RESOURCE": 24, "CAP_CHECKPOINT_RESTORE": 40}  # fmt: skip
    (said,) = re.findall(r"^CapabilityBoundingSet=(.*)$", (SYSTEMD / "moetuned.service").read_text(), re.MULTILINE)
    assert set(said.split()) == set(numbers)
    own = int(
        re.findall(r"^CapBnd:\s*(\S+)$", Path("/proc/self/status").read_text(), re.MULTILINE)[0], 16
    )  # a container has fewer
    assert int(house.in_status("CapBnd")[0], 16) == own & sum(1 << number for number in numbers.values())
    mounts = house.machine.path(f"/proc/{house.show('MainPID')}/mountinfo").read_text().splitlines()
    options = {fields[4]: fields[5].split(",") for fields in (line.split() for line in mounts)}
    for directory in ("/usr", "/etc", "/home"):
        if house.machine.path(directory).exists():
            assert "ro" in options[directory], directory
    assert {"/tmp", "/var/tmp"} & set(options)
    for directory in ("/run", "/var/lib"):
        assert "ro" not in options.get(directory, [])


@pytest.mark.skipif(first_open_port() <= 80, reason="here everybody may listen on port 80")
def test_a_port_that_they_refuse_keeps_nothing_else_from_going_on(house: House) -> None:
    house.configure(api={"listen": "127.0.0.1:80"})
    checked = house.machine.moetunectl("config", "check")
    assert "moetuned.service may not listen on a port below" in checked.stderr
    house.start()
    status = json.loads(house.machine.moetunectl("status", "--json", check=False).stdout)
    (note,) = (note for note in status["notes"] if "api.listen" in note)
    assert "needs CAP_NET_BIND_SERVICE" in note
    assert house.show("NRestarts") == "0"
    assert note in house.log()


def test_a_socket_that_never_can_be_is_not_tried_for_ever(house: House) -> None:
    house.machine.write("/run/no-directory", "")
    house.configure(api={"listen": False, "socket": "/run/no-directory/api.sock"})
    assert house.machine.run("systemctl", "start", "moetuned.service", check=False).returncode != 0
    assert (house.show("Result"), house.show("ExecMainStatus"), house.show("NRestarts")) == ("exit-code", "2", "0")
    assert house.show("ActiveState") == "failed"
    assert "cannot make the directory /run/no-directory" in house.log()


def test_a_hook_runs_outside_of_them(house: House) -> None:
    house.machine.write("/etc/moetuned/hooks.d/look", HOOK, 0o755)
    house.machine.write("/tmp/of-the-machine", "")
    house.configure(alerts=[{"kind": "exec", "directory": "/etc/moetuned/hooks.d"}])
    house.start()
    house.machine.moetunectl("alerts", "test")
    said = house.machine.path("/var/lib/hook.out").read_text()
    assert "NoNewPrivs:\t0\nSeccomp:\t0\n" in said
    assert "moetuned-run-" in said
    assert "of-the-machine" in said
    assert house.machine.path("/etc/by-hook").read_text() == "by-hook\n"
    assert os.listdir(house.machine.path("/run/moetuned/outside")) == []


@pytest.mark.skipif(not os.path.exists("/usr/bin/msmtp"), reason="needs msmtp")
def test_mail_webhook_and_hook_arrive_from_within_them(house: House) -> None:
    """All three of one event, which nobody asked for: a backend whose process ends."""
    machine = house.machine
    machine.write("/opt/bin/taker", TAKER, 0o755)
    machine.write("/etc/systemd/system/taker.service", "[Service]\nExecStart=/opt/bin/taker\n")
    machine.write(
        "/etc/msmtprc",
        "account default\nhost 127.0.0.1\nport 8025\nfrom moetuned@example.org\nauth off\ntls off\n",
        0o600,
    )
    hook = "#!/bin/sh\ncat >/var/lib/hook.out.new\nmv /var/lib/hook.out.new /var/lib/hook.out\n"
    machine.write("/etc/moetuned/hooks.d/look", hook, 0o755)
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "taker.service")
    house.configure(
        backends=[
            {
                "name": "glm", "url": "http://127.0.0.1:8086",
                "supervise": {"by": "process", "command": ["/bin/false"]},
            }
        ],
        alerts=[
            {"kind": "mail", "to": ["me@example.org"], "on": ["backend_down"], "program": "/usr/bin/msmtp"},
            {"kind": "webhook", "url": "http://127.0.0.1:8090/hook", "on": ["backend_down"]},
            {"kind": "exec", "directory": "/etc/moetuned/hooks.d", "on": ["backend_down"]},
        ],
    )  # fmt: skip
    house.start()
    try:
        said = {
            name: until(
                lambda name=name: (file := machine.path(f"/var/lib/{name}.out")).exists() and file.read_text(), name
            )
            for name in ("mail", "webhook", "hook")
        }
        assert "RCPT TO:<me@example.org>" in said["mail"]
        assert re.search(r"^Subject: .*glm", said["mail"], re.MULTILINE), said["mail"]
        assert "Auto-Submitted: auto-generated" in said["mail"]
        assert json.loads(said["webhook"])["backend"] == json.loads(said["hook"])["backend"] == "glm"
    finally:
        machine.systemctl("stop", "taker.service", check=False)
        machine.run(
            "rm", "-f", "/etc/msmtprc", "/var/lib/mail.out", "/var/lib/webhook.out", "/etc/systemd/system/taker.service"
        )


def test_the_self_test_turns_nothing_off_that_runs_outside_of_them(house: House) -> None:
    swap = {"file": "/var/lib/moetuned/swap", "size": "64MiB"}
    house.configure(tuning={"profile": "moe-offload", "swap": swap})
    house.start()
    asked = ("status", "--capabilities", "--json")
    found: dict[str, Any] = {"state": "pending"}

    def done() -> bool:
        found.update(json.loads(house.machine.moetunectl(*asked).stdout))
        return bool(found["state"] != "pending")

    until(done, "rehearsed")
    answers = {(one["rehearsal"], one["subject"]): one["answer"] for one in found["capabilities"]}
    assert answers["swap_calls", "swapon"] == answers["swap_calls", "swapoff"] == "yes", found
    assert [line for line in found["cannot"] if "swap" in line] == []
    assert os.listdir(house.machine.path("/run/moetuned/outside")) == []


def test_a_stop_ends_a_hook_that_hangs(house: House) -> None:
    house.machine.write("/etc/moetuned/hooks.d/look", HOOK, 0o755)
    house.machine.write("/run/hang", "")
    house.configure(alerts=[{"kind": "exec", "directory": "/etc/moetuned/hooks.d", "timeout": "10m"}])
    house.start()
    ask = f"{CTL} alerts test"
    house.machine.run("systemd-run", "--quiet", f"--setenv=PYTHONPATH={HOUSE}", "sh", "-c", ask)
    hangs = ("pgrep", "-f", "sleep 1234")
    until(lambda: len(house.machine.run(*hangs, check=False).stdout.split()) == 2, "it hangs")
    house.machine.systemctl("stop", "moetuned.service")
    until(lambda: house.machine.run(*hangs, check=False).returncode != 0, "it is ended")


def test_a_backends_unit(house: House) -> None:
    machine = house.machine
    machine.path("/srv/m").mkdir(parents=True)
    machine.run(sys.executable, "-m", "moetuned.simulator", "make-model", "/srv/m/model.gguf", "--size", "8M")
    example = (ROOT / "etc/backends/example.env").read_text()
    text = re.sub(r"^MODEL=.*$", "MODEL=/srv/m/model.gguf", example, flags=re.MULTILINE)
    machine.write("/etc/moetuned/backends/glm.env", text, 0o600)
    machine.write("/etc/moetuned/backends/glm.key", "secret-key\n", 0o600)
    unit = "moetuned-backend@glm.service"

    def serving() -> list[str]:
        argv = machine.path(f"/proc/{machine.show(unit, 'MainPID')}/cmdline").read_text().split("\0")
        return argv if "moetuned.simulator" in argv else []

    machine.systemctl("start", unit)
    try:
        argv = until(serving, "it serves")
        assert "the key ends with -key" in machine.journal(unit)
        assert machine.show(unit, "ControlGroup").startswith("/moetuned.slice/")
        context = argv[argv.index("--ctx-size") + 1]
        shorter = str(int(context) // 2)
        machine.write("/run/moetuned/backends/glm.env", f"MOETUNED_CONTEXT={shorter}\n", 0o600)
        machine.systemctl("restart", unit)
        argv = until(serving, "it serves again")
        assert argv[argv.index("--ctx-size") + 1] == shorter
        asked = ("journalctl", "--no-pager", "--output=json", "--identifier=moetuned-glm")
        said = until(lambda: machine.run(*asked, check=False).stdout, "its log")
        assert {json.loads(line)["_SYSTEMD_UNIT"] for line in said.splitlines()} == {unit}
    finally:
        machine.systemctl("stop", unit, check=False)
        machine.systemctl("reset-failed", unit, check=False)
        machine.path("/run/moetuned/backends/glm.env").unlink(missing_ok=True)


def view(house: House, name: str) -> dict[str, Any]:
    done = house.machine.moetunectl("status", "--json", check=False)
    found = json.loads(done.stdout)["backends"] if done.returncode == 0 else []
    return next((each for each in found if each["name"] == name), {})


def test_conversations_of_a_backends_unit_go_on_after_a_restart(house: House) -> None:
    """Its state directory is behind a link to /var/lib/private, and mounted for it alone."""
    machine = house.machine
    machine.path("/srv/m").mkdir(parents=True, exist_ok=True)
    machine.run(sys.executable, "-m", "moetuned.simulator", "make-model", "/srv/m/model.gguf", "--size", "8M")
    example = (ROOT / "etc/backends/example.env").read_text()
    text = re.sub(r"^MODEL=.*$", "MODEL=/srv/m/model.gguf", example, flags=re.MULTILINE)
    text = re.sub(r"^PORT=.*$", "PORT=8084", text, flags=re.MULTILINE)
    machine.write("/etc/moetuned/backends/glm.env", re.sub("=16384", "=8192", text), 0o600)
    machine.write("/etc/moetuned/backends/glm.key", "secret-key\n", 0o600)
    unit = "moetuned-backend@glm.service"
    assert re.search(r"^context +8192 ", machine.moetunectl("backend", "adopt", unit).stdout, re.MULTILINE)
    house.configure(
        backends=[
            {
                "name": "glm", "model": "/srv/m/model.gguf", "url": "http://127.0.0.1:8084",
                "supervise": {"by": "systemd", "unit": unit}, "context": {"preferred": 8192, "minimum": 1024},
            }
        ]
    )  # fmt: skip
    house.start()
    machine.systemctl("start", unit)
    try:
        until(lambda: view(house, "glm").get("verdict", {}).get("phase") == "idle", "it is ready")
        until(lambda: view(house, "glm").get("context", {}).get("now") == 8192, "what it is")
        until(lambda: view(house, "glm").get("kind") == "simulator", "which kind of server it is")
        ask = ("-m", "moetuned.simulator", "ask", "http://127.0.0.1:8084", "--tokens", "4", "--prompt-tokens", "300")
        machine.run(sys.executable, *ask)
        machine.moetunectl("backend", "restart", "glm", "--context", "4096", "--yes")
        until(lambda: view(house, "glm").get("context", {}).get("now") == 4096, "restarted")
        said = until(lambda: re.search(r"backend_restarted: .*|.*conversation.*", house.log()), "what became of it")
        assert "1 conversation goes on" in house.log(), said[0]
        assert os.listdir(machine.path("/var/lib/private/moetuned-backends/glm")) == [], "what was saved is removed"
    finally:
        machine.systemctl("stop", unit, check=False)
        machine.systemctl("reset-failed", unit, check=False)
        machine.path("/run/moetuned/backends/glm.env").unlink(missing_ok=True)


def test_backends_of_both_kinds_within_the_limits(house: House) -> None:
    """One that is the daemon's child, in a scope and with the limits; one that a script has restarted, outside of them."""
    machine = house.machine
    machine.path("/srv/m").mkdir(parents=True, exist_ok=True)
    machine.run(sys.executable, "-m", "moetuned.simulator", "make-model", "/srv/m/model.gguf", "--size", "8M")
    serve = [
        sys.executable,
        "-m",
        "moetuned.simulator",
        "serve",
        "-m",
        "/srv/m/model.gguf",
        "--metrics",
        "-np",
        "1",
        "-c",
    ]
    theirs = f"[Service]\nType=exec\n{ENVIRONMENT}\nEnvironmentFile=/etc/context\nExecStart={' '.join(serve)} $CONTEXT --port 8082\n"
    machine.write("/etc/context", "CONTEXT=4096\n")
    machine.write("/etc/systemd/system/theirs.service", theirs)
    script = '#!/bin/sh\nset -e\ngrep NoNewPrivs: /proc/self/status\necho "CONTEXT=$1" >/etc/context\nsystemctl restart theirs.service\n'
    machine.write("/opt/bin/restart", script, 0o755)
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "theirs.service")
    house.configure(
        backends=[
            {
                "name": "own", "model": "/srv/m/model.gguf", "url": "http://127.0.0.1:8081",
                "supervise": {"by": "process", "command": [*serve, "{context}", "--port", "8081"]},
                "context": {"preferred": 4096, "minimum": 1024},
            },
            {
                "name": "theirs", "model": "/srv/m/model.gguf", "url": "http://127.0.0.1:8082",
                "supervise": {"by": "command", "restart": ["/opt/bin/restart", "{context}"]},
                "context": {"preferred": 4096, "minimum": 1024},
            },
        ]
    )  # fmt: skip
    house.start()
    try:
        for name in ("own", "theirs"):
            until(lambda name=name: view(house, name).get("verdict", {}).get("phase") == "idle", f"{name} is ready")
        pid = view(house, "own")["pid"]
        assert "/moetuned.slice/moetuned-backend-own.scope" in machine.path(f"/proc/{pid}/cgroup").read_text()
        assert "NoNewPrivs:\t1" in machine.path(f"/proc/{pid}/status").read_text()
        machine.moetunectl("backend", "restart", "theirs", "--context", "2048", "--now", "--yes")
        until(lambda: view(house, "theirs").get("context", {}).get("now") == 2048, "what the script did")
        assert re.search(r"NoNewPrivs:.0", house.log())
        machine.moetunectl("backend", "restart", "own", "--context", "2048", "--now", "--yes")
        until(lambda: view(house, "own").get("context", {}).get("now") == 2048, "restarted by the daemon")
    finally:
        machine.systemctl("stop", "theirs.service", check=False)
        machine.systemctl("reset-failed", "theirs.service", check=False)
        machine.path("/etc/systemd/system/theirs.service").unlink()


def test_a_system_call_that_is_filtered_is_refused_and_kills_nobody(house: House) -> None:
    """As swapping on is, and a mount: here through a backend that tries it and ends with what came of it."""
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.swapon(b'/absent', 0); print('errno', ctypes.get_errno(), flush=True)"
    house.machine.write("/opt/bin/tries.py", f"#!{sys.executable}\n{code}\n", 0o755)
    command = [sys.executable, "/opt/bin/tries.py"]
    supervise = {"by": "process", "command": command}
    house.configure(backends=[{"name": "tries", "url": "http://127.0.0.1:8083", "supervise": supervise}])
    house.start()
    until(lambda: "errno 1\n" in house.machine.run("journalctl", "--no-pager", "--output=cat").stdout, "its answer")
    assert house.show("NRestarts") == "0"
