"""Units at a real systemd: adopted, restarted with a shorter context, looked at in every state, and as they were afterwards."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.booted_systemd import PYTHON_PATH, ROOT, BootedSystemd

pytestmark = pytest.mark.systemd

MODEL = "/var/lib/model.gguf"
UNIT = f"""\
[Unit]
Description=A backend of the test's own
[Service]
Type=exec
Environment="PYTHONPATH={PYTHON_PATH}" LLAMA_ARG_CACHE_RAM=64
ExecStart={sys.executable} -m moetuned.simulator serve \\
    # the model
    --model "{MODEL}" --port 8080 \\
    -c 4096 -np 1
"""
DRIVER = """
import json, os, select, sys
from moetuned.host.own_processes import let_on, stop_others
from moetuned.host.processes import identify
from moetuned.host.service import ServiceError
from moetuned.host.systemd_unit import SystemdUnit
name, *calls = json.loads(sys.argv[1])
unit = SystemdUnit(name, f"{name}.service")
answers = []
main = identify(int(os.popen(f"systemctl show --value -p MainPID {name}.service").read() or 0))
for verb, *arguments in calls:
    if verb == "die":  # its main process, by this signal; waits until it has ended
        pid = unit.look().pid
        handle = os.pidfd_open(pid)
        os.kill(pid, arguments[0])
        select.select([handle], [], [])
        answers.append(pid)
        continue
    if verb == "kill":  # what was its main process before all this
        answers.append(unit.kill(main))
        continue
    if verb == "stop and let on":  # what runs with its main process
        stopped = stop_others(main, lambda: unit.hold(main), lambda _: None)
        states = lambda: [open(f"/proc/{each.pid}/stat").read().rpartition(")")[2].split()[0] for each in stopped]
        while "R" in (before := states()):
            pass
        let_on(stopped)
        answers.append([[each.pid for each in stopped], before, "T" in states()])
        continue
    try:
        answer = getattr(unit, verb)(*arguments)
    except ServiceError as error:
        answer = f"ServiceError: {error}"
    if verb == "look" and not isinstance(answer, str):
        answer = {field: getattr(answer, field) for field in answer.__struct_fields__}
    answers.append(sorted(answer) if isinstance(answer, frozenset) else answer)
print(json.dumps(answers))
"""


class Units:
    """Units of a booted systemd, and the real code that asks it, run in it."""

    def __init__(self, machine: BootedSystemd) -> None:
        self.machine = machine

    def make(self, name: str, text: str) -> None:
        self.machine.write(f"/etc/systemd/system/{name}.service", text)
        self.machine.systemctl("daemon-reload")

    def start(self, name: str) -> None:
        """Start it, or wait for what is queued for it."""
        self.machine.systemctl("start", f"{name}.service")

    def ask(self, name: str, *calls: tuple[Any, ...]) -> list[Any]:
        """What SystemdUnit answers to each call."""
        done = self.machine.run(sys.executable, "-c", DRIVER, json.dumps([name, *calls]))
        return list(json.loads(done.stdout))

    def heard(self, name: str, text: str) -> str:
        """What a unit has said, once this is in it."""
        for _ in range(1000):  # each time journalctl is run
            if text in (said := self.machine.journal(f"{name}.service")):
                return said
        raise AssertionError(f"{name} never said {text!r}: {said}")

    def argv(self, name: str) -> list[str]:
        """Of its main process."""
        pid = self.machine.show(f"{name}.service", "MainPID")
        return self.machine.path(f"/proc/{pid}/cmdline").read_text().removesuffix("\0").split("\0")

    def files(self) -> dict[str, str | None]:
        """All that is below the directories which an adoption may touch."""
        found: dict[str, str | None] = {}
        for directory in ("/etc/systemd/system", "/run/moetuned/backends"):
            root = self.machine.path(directory)
            for path in sorted(root.rglob("*")):
                found[f"{directory}/{path.relative_to(root)}"] = path.read_text() if path.is_file() else None
        return found


@pytest.fixture(scope="module")
def machine_with_model(booted_systemd: BootedSystemd) -> BootedSystemd:
    booted_systemd.run(sys.executable, "-m", "moetuned.simulator", "make-model", MODEL, "--size", "8M")
    return booted_systemd


@pytest.fixture
def units(machine_with_model: BootedSystemd) -> Iterator[Units]:
    machine = machine_with_model
    before = {path.name for path in machine.path("/etc/systemd/system").iterdir()}
    yield Units(machine)
    for path in machine.path("/etc/systemd/system").iterdir():
        if path.name in before:
            continue
        if path.suffix == ".service":
            machine.systemctl("kill", "--signal=SIGKILL", path.name, check=False)
            machine.systemctl("stop", path.name, check=False)
            machine.systemctl("reset-failed", path.name, check=False)
            path.unlink()
        else:
            shutil.rmtree(path)
    machine.systemctl("daemon-reload")


SLEEPS = "[Service]\nType=exec\nExecStart=/bin/sleep 1000\n"
STUBBORN = "[Service]\nType=exec\nExecStart=/bin/sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1000; done'\nTimeoutStopSec=1h\n"


def test_the_whole_story(units: Units) -> None:
    units.make("llama", UNIT)
    units.start("llama")
    before, argv = units.files(), units.argv("llama")
    shown = units.machine.moetunectl("backend", "adopt", "llama")
    assert "+ExecStart=" in shown.stdout
    assert "context: {preferred: 4096}" in shown.stdout
    assert units.files() == before

    report = json.loads(units.machine.moetunectl("backend", "adopt", "llama", "--write", "--json").stdout)
    assert (report["done"], report["notes"]) == (True, [])
    assert units.argv("llama") == argv, "it was not restarted"
    first, settable, _, looked = units.ask(
        "llama", ("look",), ("settable",), ("restart", {"context": "2048", "prompt_cache_mib": "0"}), ("look",)
    )
    assert settable == ["checkpoints", "context", "prompt_cache_mib", "slots"]
    assert not looked["stopped_by_owner"]
    units.start("llama")
    second = units.ask("llama", ("look",))[0]
    assert second == {**first, "pid": second["pid"], "on_purpose": True}
    assert second["pid"] != first["pid"]
    assert units.argv("llama") == ["2048" if word == "4096" else word for word in argv]
    environment = units.machine.path(f"/proc/{second['pid']}/environ").read_text().split("\0")
    assert "LLAMA_ARG_CACHE_RAM=0" in environment
    assert units.machine.path("/run/moetuned/backends/llama.env").stat().st_mode & 0o777 == 0o600

    assert "removed" in units.machine.moetunectl("backend", "adopt", "--undo", "llama").stdout
    assert units.files() == before
    assert units.ask("llama", ("settable",)) == [[]]
    units.machine.systemctl("restart", "llama.service")
    assert units.argv("llama") == argv


def test_without_the_file_it_starts_as_it_did(units: Units) -> None:
    """Also with every kind of quoting on its command; what is not a value is what it was, to the last letter."""
    odd = r"""ExecStart=-/opt/bin/llama-server --alias "it's 100%% $$5" 'x "y"' a\sb\\c --tag=%N-${TAG} "-c" '4096' --x=\t\; \; -np=2"""
    units.machine.write("/opt/bin/llama-server", f"#!{sys.executable}\nimport signal\nsignal.pause()\n", 0o755)
    odd = odd.replace(r"\t\; ", r"\t ")
    units.make("odd", f"[Service]\nType=exec\nEnvironment=TAG=t\n{odd}\n")
    units.start("odd")
    argv = units.argv("odd")
    assert argv[2:] == [
        "--alias",
        "it's 100% $5",
        'x "y"',
        "a b\\c",
        "--tag=odd-t",
        "-c",
        "4096",
        "--x=\t",
        ";",
        "-np=2",
    ]
    units.machine.moetunectl("backend", "adopt", "odd", "--name", "other", "--write")
    units.machine.systemctl("restart", "odd.service")
    assert units.argv("odd") == argv
    units.machine.write("/run/moetuned/backends/other.env", "MOETUNED_CONTEXT=512\nMOETUNED_SLOTS=1\n", 0o600)
    units.machine.systemctl("restart", "odd.service")
    changed = {"4096": "512", "-np=2": "-np=1"}
    assert units.argv("odd") == [changed.get(word, word) for word in argv]


def test_a_drop_in_that_was_edited_is_left_and_shown(units: Units) -> None:
    units.make("llama", UNIT)
    units.machine.moetunectl("backend", "adopt", "llama", "--write")
    drop_in = units.machine.path("/etc/systemd/system/llama.service.d/zz-moetuned.conf")
    drop_in.write_text(drop_in.read_text() + "# mine\n")
    units.machine.systemctl("daemon-reload")
    before = units.files()
    for arguments in (("--undo", "llama"), ("llama", "--write")):
        refused = units.machine.moetunectl("backend", "adopt", *arguments, check=False)
        assert refused.returncode == 4
        assert "was edited since moetuned wrote it" in refused.stderr
    assert "+# mine" in units.machine.moetunectl("backend", "adopt", "--undo", "llama", check=False).stderr
    assert units.files() == before


def test_units_that_are_not_there_or_not_read(units: Units) -> None:
    absent = units.machine.moetunectl("backend", "adopt", "absent", check=False)
    assert (absent.returncode, "systemd has no unit absent.service" in absent.stderr) == (1, True)
    assert "systemd has no unit absent.service" in units.ask("absent", ("look",))[0]
    units.make("llama", UNIT)
    units.start("llama")
    units.machine.write("/etc/systemd/system/llama.service", UNIT + "# later\n")
    refused = units.machine.moetunectl("backend", "adopt", "llama", "--write", check=False)
    assert (refused.returncode, "run systemctl daemon-reload" in refused.stderr) == (4, True)


def test_what_its_owner_stopped_stays_stopped(units: Units) -> None:
    units.make("a", SLEEPS)
    looked = units.ask("a", ("look",))[0]
    assert (looked["pid"], looked["stopped_by_owner"], looked["ended"]) == (None, True, None), "never started"
    units.start("a")
    units.machine.systemctl("stop", "a.service")
    looked, refused = units.ask("a", ("look",), ("restart", {}))
    assert looked["stopped_by_owner"]
    assert looked["ended"] in (None, "was ended by SIGTERM"), "systemd forgets units that nobody needs"
    assert "moetuned does not start it" in refused
    assert units.machine.show("a.service", "ActiveState") == "inactive"


def test_one_that_fails_while_it_is_stopped_was_stopped(units: Units) -> None:
    units.make("a", "[Service]\nExecStart=/bin/sh -c 'trap \"exit 3\" TERM; echo ready; while :; do sleep 0.1; done'\n")
    units.start("a")
    units.heard("a", "ready")
    units.machine.systemctl("stop", "a.service")
    assert units.machine.show("a.service", "ActiveState") == "failed"
    looked = units.ask("a", ("look",))[0]
    assert (looked["stopped_by_owner"], looked["ended"]) == (True, "exited with code 3")


def test_one_that_crashes_was_not_stopped_and_is_started_again(units: Units) -> None:
    units.make("a", SLEEPS)
    units.start("a")
    pid, looked, done = units.ask("a", ("die", 11), ("look",), ("restart", {}))
    assert looked == {
        "pid": None,
        "pid_known": True,
        "changing": False,
        "ended": looked["ended"],
        "stopped_by_owner": False,
        "oom_killed": False,
        "on_purpose": False,
    }
    assert looked["ended"].startswith("was ended by SIGSEGV")
    assert done is None
    units.start("a")
    assert units.ask("a", ("look",))[0]["pid"] not in (None, pid)


def test_a_start_that_fails_after_a_crash_is_no_stop(units: Units) -> None:
    units.machine.write("/opt/bin/goes", "#!/bin/sh\necho ready\nexec sleep 1000\n", 0o755)
    units.make("a", "[Service]\nType=exec\nExecStart=/opt/bin/goes\n")
    units.start("a")
    units.heard("a", "ready")
    units.machine.path("/opt/bin/goes").unlink()
    _, refused_start, _ = units.ask("a", ("die", 9), ("restart", {}), ("look",))
    assert refused_start is None, "it is under way"
    units.machine.systemctl("start", "a.service", check=False)
    looked = units.ask("a", ("look",))[0]
    assert (looked["pid"], looked["changing"], looked["stopped_by_owner"]) == (None, False, False)
    assert looked["ended"] == "could not be started: its program cannot be run (EXEC)"


def test_between_two_starts_it_is_changing(units: Units) -> None:
    units.make("a", SLEEPS + "Restart=on-failure\nRestartSec=1h\n")
    units.start("a")
    _, looked, done = units.ask("a", ("die", 9), ("look",), ("restart", {}))
    assert (looked["changing"], looked["stopped_by_owner"], looked["ended"]) == (True, False, "was ended by SIGKILL")
    assert done is None
    units.start("a")
    assert units.ask("a", ("look",))[0]["pid"] is not None


def test_one_that_is_restarted_ended_on_purpose(units: Units) -> None:
    """Also one that crashed before, and while its old process takes its time; a start of systemd's own, after a crash, is none."""
    units.make("a", SLEEPS + "Restart=always\nRestartSec=100ms\n")
    units.start("a")
    assert not units.ask("a", ("look",))[0]["on_purpose"], "it runs for the first time"
    units.machine.systemctl("restart", "a.service")
    assert units.ask("a", ("look",))[0]["on_purpose"]
    for signal in (11, 15):  # 15: as clean as an end by itself can be
        first = units.ask("a", ("die", signal))[0]
        while (looked := units.ask("a", ("look",))[0])["pid"] in (None, first):
            assert not looked["on_purpose"]
        assert not looked["on_purpose"]
    units.machine.systemctl("restart", "a.service")
    assert units.ask("a", ("look",))[0]["on_purpose"]

    units.make("b", STUBBORN)
    units.start("b")
    units.heard("b", "ready")
    for verb in ("try-restart", "stop"):
        units.machine.systemctl(verb, "--no-block", "b.service")
        looked = units.ask("b", ("look",))[0]
        assert (looked["changing"], looked["on_purpose"], looked["pid"] is None) == (True, True, False)
        units.ask("b", ("kill",))
        units.machine.systemctl("start" if verb == "try-restart" else "stop", "b.service")
        looked = units.ask("b", ("look",))[0]
        assert (looked["on_purpose"], looked["stopped_by_owner"]) == (verb == "try-restart", verb == "stop")
        if verb == "try-restart":
            units.heard("b", "ready")


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("ExecStart=/no/such/program", "could not be started: its program cannot be run (EXEC)"),
        ("ExecStart=/bin/sh -c 'exit 7'", "exited with code 7"),
        ("User=nobody-of-this-name\nExecStart=/bin/true", "could not be started: its user is not known (USER)"),
    ],
)
def test_one_that_cannot_be_started(units: Units, text: str, ended: str) -> None:
    # One whose start is over when its process is.
    units.make("a", f"[Service]\nType=oneshot\n{text}\n")
    units.machine.systemctl("start", "a.service", check=False)
    looked = units.ask("a", ("look",))[0]
    assert (looked["pid"], looked["stopped_by_owner"], looked["ended"]) == (None, False, ended)


def test_one_that_failed_too_often_is_started_when_it_is_asked_for(units: Units) -> None:
    units.make(
        "a",
        "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 5'\n",
    )
    for _ in range(3):
        units.machine.systemctl("start", "a.service", check=False)
    assert "repeated too quickly" in units.machine.journal("a.service")
    looked = units.ask("a", ("look",))[0]
    assert (looked["stopped_by_owner"], looked["ended"]) == (False, "exited with code 5")
    units.make("a", "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n" + SLEEPS)
    assert units.ask("a", ("restart", {})) == [None]
    units.start("a")
    assert units.ask("a", ("look",))[0]["pid"] is not None


def test_a_stop_that_is_under_way_goes_before_a_restart(units: Units) -> None:
    units.make("a", STUBBORN)
    units.start("a")
    units.heard("a", "ready")
    units.machine.systemctl("stop", "--no-block", "a.service")
    looked, refused, _ = units.ask("a", ("look",), ("restart", {}), ("kill",))
    assert (looked["changing"], looked["stopped_by_owner"]) == (True, False)
    assert "was not done" in refused
    units.machine.systemctl("stop", "a.service")
    looked = units.ask("a", ("look",))[0]
    assert (looked["pid"], looked["stopped_by_owner"], looked["ended"]) == (None, True, "was ended by SIGKILL")


def test_a_restart_that_waits_for_the_end_goes_on_when_it_is_killed(units: Units) -> None:
    units.make("a", STUBBORN)
    units.start("a")
    units.heard("a", "ready")
    before, _, waiting, _ = units.ask("a", ("look",), ("restart", {}), ("look",), ("kill",))
    assert waiting["changing"]
    assert not waiting["stopped_by_owner"]
    units.start("a")
    after = units.ask("a", ("look",))[0]
    assert after["pid"] not in (None, before["pid"])


def test_what_its_main_process_started_in_another_session_is_stopped_with_it(units: Units) -> None:
    units.make("a", "[Service]\nType=exec\nExecStart=/bin/sh -c 'setsid sleep 1000 & echo started; wait'\n")
    units.start("a")
    units.heard("a", "started")
    looked, (stopped, before, still) = units.ask("a", ("look",), ("stop and let on",))
    assert len(stopped) == 1
    assert looked["pid"] not in stopped
    assert (before, still) == (["T"], False)


def test_what_is_killed_is_never_the_next_process(units: Units) -> None:
    """Which systemd starts at once where nothing else of the unit is left."""
    stays = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    units.make("stays", f'[Service]\nType=exec\nExecStart={sys.executable} -c "{stays}"\nTimeoutStopSec=1h\n')
    units.start("stays")
    units.heard("stays", "ready")
    before, _, pid, _ = units.ask("stays", ("look",), ("restart", {}), ("die", 9), ("kill",))
    units.start("stays")
    looked = units.ask("stays", ("look",))[0]
    assert pid == before["pid"] != looked["pid"]
    assert looked["pid"] is not None
    assert units.machine.journal("stays.service").count("status=9/KILL") == 1


def test_the_unit_that_comes_with_moetuned(units: Units) -> None:
    """With the stand-in for llama-server, as its own user, and with its own state directory and key."""
    if sys.prefix.startswith(("/tmp/", "/var/tmp/")):
        pytest.skip("the unit has a /tmp of its own, and Python's packages are in the other one")
    machine, source = units.machine, Path(ROOT / "moetuned")
    shutil.copytree(source, machine.path("/opt/source/moetuned"), ignore=shutil.ignore_patterns("__pycache__"))
    machine.write(
        "/opt/bin/llama-server",
        f"""#!/bin/sh
test -w "$(echo "$@" | sed 's/.*--slot-save-path \\([^ ]*\\).*/\\1/')" && echo state is writable
key=$(echo "$@" | sed 's/.*--api-key-file \\([^ ]*\\).*/\\1/')
echo "user $(id -u), key $(cat "$key")."
shift_two=$(echo "$@" | sed 's/ --api-key-file [^ ]*//; s/ --slot-save-path [^ ]*//')
export PYTHONPATH=/opt/source:{PYTHON_PATH}
cd /opt/source && exec {sys.executable} -m moetuned.simulator serve $shift_two
""",
        0o755,
    )
    unit = (ROOT / "systemd/moetuned-backend@.service").read_text()
    machine.write(
        "/etc/systemd/system/moetuned-backend@.service",
        unit.replace("ExecStart=llama-server", "ExecStart=/opt/bin/llama-server"),
    )
    example = (ROOT / "etc/backends/example.env").read_text().replace("/models/model-00001-of-00007.gguf", MODEL)
    machine.write("/etc/moetuned/backends/glm.env", example, 0o600)
    machine.systemctl("daemon-reload")
    units.start("moetuned-backend@glm")
    units.heard("moetuned-backend@glm", ", key .")
    shown = machine.moetunectl("backend", "adopt", "moetuned-backend@glm")
    assert "its owner wrote it so" in shown.stdout
    assert "name: glm" in shown.stdout
    code = (
        "from moetuned.host.systemd_unit import SystemdUnit; u = SystemdUnit('glm', 'moetuned-backend@glm.service'); "
        "print(sorted(u.settable())); u.restart({'context': '1024', 'cache_type': 'q8_0'})"
    )
    assert machine.run(sys.executable, "-c", code).stdout.strip() == (
        "['cache_type', 'checkpoints', 'context', 'prompt_cache_mib', 'slots']"
    )
    machine.write("/etc/moetuned/backends/glm.key", "secret\n", 0o600)
    units.start("moetuned-backend@glm")
    machine.systemctl("restart", "moetuned-backend@glm.service")
    argv = units.argv("moetuned-backend@glm")
    assert argv[argv.index("--ctx-size") + 1] == "1024"
    assert argv[argv.index("--cache-type-v") + 1] == "q8_0"
    assert argv[argv.index("--parallel") + 1] == "1"
    said = units.heard("moetuned-backend@glm", ", key secret.")
    assert "state is writable" in said
    assert ", key ." in said
    assert "user 0," not in said
