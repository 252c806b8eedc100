"""`moetunectl setup` at a real systemd: from nothing to a service that runs, once more, and back to nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.booted_systemd import PYTHON_PATH, ROOT, UNITS_SEE, BootedSystemd

from moetuned.decide.setup_config import quoted

pytestmark = pytest.mark.systemd

MODEL = "/models/glm-4.5.gguf"
CONFIG = "/etc/moetuned/conf.d/50-setup.yaml"
ENVIRONMENT = f'Environment="PYTHONPATH={PYTHON_PATH}"'
DAEMON = f"""\
[Service]
Type=notify
{ENVIRONMENT}
ExecStart={sys.executable} -m moetuned.daemon run
ExecReload=/bin/kill -HUP $MAINPID
StateDirectory=moetuned
StateDirectoryMode=0700
RuntimeDirectory=moetuned
RuntimeDirectoryPreserve=yes
[Install]
WantedBy=multi-user.target
"""
LLAMA = f"""\
[Service]
Type=exec
{ENVIRONMENT}
ExecStart={sys.executable} -m moetuned.simulator serve -m {MODEL} --port 8090 -c 4096 -np 1
"""
# A user of its own cannot read the sources everywhere.
SERVER = f"""\
#!/bin/sh
words=$(echo "$@" | sed 's/ --api-key-file [^ ]*//; s/ --slot-save-path [^ ]*//')
export PYTHONPATH=/opt/source:{PYTHON_PATH}
cd /opt/source && exec {sys.executable} -m moetuned.simulator serve $words
"""
CTL = f"""\
#!/bin/sh
[ -z "$FAILS" ] || [ "$*" != "$FAILS" ] || exit 1
exec {sys.executable} -c 'import sys; from moetuned.cli.main import run; sys.exit(run(sys.argv[1:]))' "$@"
"""
LOOKED_AT = ("/etc", "/var/lib", "/run/moetuned/backends")


def files(machine: BootedSystemd) -> dict[str, str | None]:
    """All that is below the directories which setup may touch."""
    found: dict[str, str | None] = {}
    for directory in LOOKED_AT:
        root = machine.path(directory)
        for path in sorted(root.rglob("*")):
            name = f"{directory}/{path.relative_to(root)}"
            # What systemd keeps of its own, and the daemon of a backend until the next boot.
            if name.startswith(("/var/lib/systemd", "/etc/.pwd.lock")) or name.endswith("/glm-4.5.json"):
                continue
            found[name] = path.read_text(errors="replace") if path.is_file() and not path.is_symlink() else None
    return found


@pytest.fixture(scope="module")
def installed(booted_systemd: BootedSystemd) -> BootedSystemd:
    """A machine with moetuned's units, the stand-in as its llama-server, and a model."""
    machine = booted_systemd
    machine.run("mkdir", "-p", "/models", "/etc/moetuned/conf.d", "/etc/moetuned/backends")
    machine.run(sys.executable, "-m", "moetuned.simulator", "make-model", MODEL, "--size", "8M")
    shutil.copytree(ROOT / "moetuned", machine.path("/opt/source/moetuned"))
    machine.write("/opt/bin/llama-server", SERVER, 0o755)
    machine.write("/etc/systemd/system/moetuned.service", DAEMON)
    unit = (ROOT / "systemd/moetuned-backend@.service").read_text()
    unit = unit.replace("ExecStart=llama-server", "ExecStart=/opt/bin/llama-server")
    machine.write("/etc/systemd/system/moetuned-backend@.service", unit)
    machine.write("/etc/systemd/system/moetuned-backend@.service.d/seen.conf", f"[Service]\n{UNITS_SEE}\n")
    machine.systemctl("daemon-reload")
    return machine


@pytest.fixture
def machine(installed: BootedSystemd) -> Iterator[BootedSystemd]:
    yield installed
    installed.moetunectl("setup", "--undo", "--yes", check=False)
    installed.systemctl("stop", "llama.service", check=False)
    for path in (CONFIG, f"{CONFIG}.bak", "/etc/systemd/system/llama.service"):
        installed.path(path).unlink(missing_ok=True)
    installed.systemctl("daemon-reload")


def setup(machine: BootedSystemd, *arguments: str) -> dict[str, Any]:
    """Its JSON."""
    return dict(json.loads(machine.moetunectl("setup", "--yes", "--json", *arguments).stdout))


def test_from_nothing_to_a_service_and_back(machine: BootedSystemd) -> None:
    before = files(machine)
    shown = machine.moetunectl("setup", "--dry-run", "--profile", "observe").stdout
    assert f"write {CONFIG}" in shown
    assert files(machine) == before, "a dry run writes nothing"

    report = setup(machine, "--profile", "observe", "--context", "8192", "--minimum", "1024")
    assert [each["step"] for each in report["plan"]["deeds"]] == ["write", "write", "start_backend", "start_service"]
    assert machine.systemctl("is-active", "moetuned.service", "moetuned-backend@glm-4.5.service") == "active\nactive"
    assert machine.systemctl("is-enabled", "moetuned.service") == "enabled"
    status = json.loads(machine.moetunectl("status", "--json").stdout)
    assert [each["name"] for each in status["backends"]] == ["glm-4.5"]
    assert report["status"], "which says more from second to second"
    assert "ok:" in machine.moetunectl("config", "check").stdout

    after = files(machine)
    shown = machine.moetunectl("setup", "--yes").stdout
    assert "Nothing to do: all is as it was set up." in shown
    assert {name: text for name, text in files(machine).items() if name.startswith("/etc")} == {
        name: text for name, text in after.items() if name.startswith("/etc")
    }

    undone = machine.moetunectl("setup", "--undo", "--yes").stdout
    assert f"remove {CONFIG}" in " ".join(undone.split())
    assert (
        machine.systemctl("is-active", "moetuned.service", "moetuned-backend@glm-4.5.service", check=False)
        == "inactive\ninactive"
    )
    assert machine.systemctl("is-enabled", "moetuned.service", check=False) == "disabled"
    left = {name for name in files(machine) if name not in before}
    # Directories that systemd made, and what the daemon keeps in its own, are the uninstaller's.
    assert {name for name in left if not name.startswith(("/var/lib/moetuned", "/var/lib/private"))} == set()
    assert "glm-4.5" not in " ".join(left)
    assert not machine.path("/var/lib/moetuned/setup.json").exists()
    assert "Nothing to take back" in machine.moetunectl("setup", "--undo", "--yes").stdout


def test_a_restart_by_setup_alarms_nobody_and_its_status_shows_the_new_process(machine: BootedSystemd) -> None:
    unit = "moetuned-backend@glm-4.5.service"
    setup(machine, "--profile", "observe", "--context", "8192", "--minimum", "1024")
    first = machine.show(unit, "MainPID")
    shown = machine.moetunectl("setup", "--yes", "--context", "4096").stdout
    assert f"done: restart {unit}" in " ".join(shown.split())
    second = machine.show(unit, "MainPID")
    assert second != first
    assert f"pid {second}" in shown
    assert "simulator-" not in shown, "which it is called until it is known whose it is"
    events = machine.moetunectl("events", "--json", check=False).stdout.splitlines()
    assert [name for line in events if (name := json.loads(line)["name"]).startswith("backend_")] == []
    machine.run("sh", "-c", f"kill -SEGV {second}")
    limit = 1000
    while "backend_down" not in machine.moetunectl("events", "--json", check=False).stdout:
        limit -= 1
        assert limit, "a crash is told all the same"


def test_a_backend_that_does_not_stay_up_is_told(machine: BootedSystemd) -> None:
    """Its model loads nowhere but in the estimate: nothing says done of it, the second time neither, and its last words are there."""
    server = machine.path("/opt/bin/llama-server").read_text()
    machine.write(
        "/opt/bin/llama-server", "#!/bin/sh\necho loading\necho 'error: no such backend device' >&2\nexit 3\n", 0o755
    )
    try:
        for _ in range(2):
            ended = machine.moetunectl("setup", "--yes", "--json", "--profile", "observe", check=False)
            assert ended.returncode == 1, ended.stderr
            report = json.loads(ended.stdout)
            words = " ".join(report["error"].split())
            assert "moetuned-backend@glm-4.5.service does not stay up: it ended with code 3" in words
            assert "The last in its journal: error: no such backend device" in words
            assert report["error"] in ended.stderr
            assert "start moetuned-backend@glm-4.5.service" not in report["done"]
        assert machine.systemctl("is-active", "moetuned.service") == "active"
    finally:
        machine.write("/opt/bin/llama-server", server, 0o755)


def test_a_unit_is_adopted_and_given_back(machine: BootedSystemd) -> None:
    machine.write("/etc/systemd/system/llama.service", LLAMA)
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "llama.service")
    before = {name: text for name, text in files(machine).items() if name.startswith("/etc")}
    report = setup(machine, "--profile", "observe", "--relief", "act")
    assert report["answers"] == {
        "backend": "llama",
        "minimum llama": "2048",
        "relief": "act",
        "profile": "observe",
        "alert": "none",
    }
    config = machine.path(CONFIG).read_text()
    assert "unit: llama.service" in config
    assert "preferred: 4096" in config
    assert machine.path("/etc/systemd/system/llama.service.d/zz-moetuned.conf").exists()
    assert setup(machine)["plan"]["deeds"] == []
    changed = setup(machine, "--relief", "observe")
    assert [each["step"] for each in changed["plan"]["deeds"]] == ["write", "reload_service"]
    machine.moetunectl("setup", "--undo", "--yes")
    assert {name: text for name, text in files(machine).items() if name.startswith("/etc")} == before
    assert machine.systemctl("is-active", "llama.service") == "active"


def test_a_removal_that_is_refused_changes_nothing(machine: BootedSystemd) -> None:
    """Before a package goes: what cannot be given back is found out while all still runs, and what was stopped is started again."""
    machine.write("/etc/systemd/system/llama.service", LLAMA)
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "llama.service")
    setup(machine, "--profile", "observe")
    machine.write("/opt/bin/moetunectl", CTL, 0o755)
    machine.write("/opt/give_back.sh", (ROOT / "scripts/give_back.sh").read_text())
    drop_in = machine.path("/etc/systemd/system/llama.service.d/zz-moetuned.conf")
    drop_in.write_text((written := drop_in.read_text()) + "# mine\n")
    before = files(machine)
    for command in (("setup", "--undo", "--yes"), ("setup", "--undo", "--dry-run")):
        refused = machine.moetunectl(*command, check=False)
        assert (refused.returncode, "was edited since moetuned wrote it" in refused.stderr) == (1, True)
    give_back = ("sh", "/opt/give_back.sh", "/opt/bin/moetunectl", "make install")
    refused = machine.run(*give_back, check=False)
    assert refused.returncode == 1
    assert "zz-moetuned.conf was edited" in refused.stderr
    assert "Nothing was removed" in refused.stderr
    started = machine.show("moetuned.service", "ExecMainStartTimestampMonotonic")
    assert machine.systemctl("is-active", "moetuned.service", "llama.service") == "active\nactive"
    assert {
        name for name, text in files(machine).items() if name.startswith("/etc") and before.get(name) != text
    } == set()

    drop_in.write_text(written)
    # What nobody could foresee: settings that cannot be put back.
    refused = machine.run(*give_back, check=False, environment={"FAILS": "tune rollback"})
    assert refused.returncode == 1
    assert "settings could not be rolled back" in refused.stderr
    assert "the service was started again" in refused.stderr
    assert machine.systemctl("is-active", "moetuned.service") == "active"
    assert machine.show("moetuned.service", "ExecMainStartTimestampMonotonic") != started
    assert machine.path(CONFIG).exists()

    machine.run(*give_back)
    assert not machine.path(CONFIG).exists()
    assert not drop_in.exists()
    assert machine.systemctl("is-active", "moetuned.service", "llama.service", check=False) == "inactive\nactive"


def test_an_edited_file_stays_until_it_is_to_be_replaced(machine: BootedSystemd) -> None:
    setup(machine, "--profile", "observe")
    path: Path = machine.path(CONFIG)
    path.write_text(edited := path.read_text().replace("preferred:", "preferred:  "))
    again = machine.moetunectl("setup", "--yes", "--relief", "act")
    assert "stays as it is" in again.stderr
    assert path.read_text() == edited
    setup(machine, "--relief", "act", "--replace-edited")
    assert "mode: act" in path.read_text()
    assert machine.path(f"{CONFIG}.bak").read_text() == edited
    path.write_text(path.read_text() + "# mine\n")
    undone = " ".join(machine.moetunectl("setup", "--undo", "--yes").stdout.split())
    assert f"kept: {CONFIG}, which was edited" in undone
    assert path.exists()


def test_systemd_reads_a_value_as_it_was_meant(machine: BootedSystemd) -> None:
    value = """/models/it's "50 %" of $HOME `x` \\n #1; é.gguf"""
    machine.write("/etc/odd.env", f"# a comment\nMODEL={quoted(value)}\nNEXT=1\n")
    unit = f"[Service]\nType=oneshot\nEnvironmentFile=/etc/odd.env\nExecStart={sys.executable} -c 'import sys; print(sys.argv[1:])' ${{MODEL}} ${{NEXT}}\n"
    machine.write("/etc/systemd/system/llama.service", unit)
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "llama.service")
    assert repr([value, "1"]) in machine.journal("llama.service")
    machine.path("/etc/odd.env").unlink()
