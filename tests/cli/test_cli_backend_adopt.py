"""`moetunectl backend adopt` with a systemctl of the test's own. With a real systemd: tests/host/test_systemd_booted.py."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_systemctl import FakeSystemctl, shown, systemctl

from moetuned.cli import backend_adopt
from moetuned.cli.main import run
from moetuned.host.environment_file import write_variables

__all__ = ["systemctl"]

COMMAND = "ExecStart=/opt/llama-server -m /m.gguf -c 1024 -np 4"


class Machine:
    """A unit and where its drop-in goes, below a directory of the test's."""

    def __init__(self, directory: Path, fake: FakeSystemctl, capsys: pytest.CaptureFixture[str]) -> None:
        self.fake, self._capsys = fake, capsys
        self.unit = directory / "llama.service"
        self.unit.write_text(f"[Service]\n{COMMAND}\n")
        self.drop_in = directory / "llama.service.d/zz-moetuned.conf"
        self.variables = str(directory / "backends")

    def show(self, **more: str | list[str]) -> None:
        """What systemctl shows from now on."""
        there = self.drop_in.exists()
        read: dict[str, str | list[str]] = {
            "FragmentPath": str(self.unit),
            "DropInPaths": str(self.drop_in) if there else "",
        }
        read["EnvironmentFiles"] = [f"{self.variables}/llama.env (ignore_errors=yes)"] if there else []
        self.fake.set(shown(**{**read, **more}))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        code = run(["backend", "adopt", *arguments])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def run_exiting(self, *arguments: str) -> tuple[int, str, str]:
        """For refusals, which end the program."""
        with pytest.raises(SystemExit) as ended:
            run(["backend", "adopt", *arguments])
        said = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemctl: FakeSystemctl, capsys: pytest.CaptureFixture[str]
) -> Machine:
    made = Machine(tmp_path, systemctl, capsys)
    for module in ("moetuned.cli.backend_adopt", "moetuned.decide.unit_adoption"):
        monkeypatch.setattr(f"{module}.drop_in_path", lambda _unit: str(made.drop_in))
    monkeypatch.setattr(backend_adopt, "DIRECTORY", made.variables)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid or 0)
    real = backend_adopt.SystemdUnit
    monkeypatch.setattr(backend_adopt, "SystemdUnit", lambda name, unit: real(name, unit, made.variables))
    made.show()
    return made


def test_it_only_shows(machine: Machine) -> None:
    code, out, err = machine.run("llama")
    assert (code, err) == (0, "")
    assert "+ExecStart=/opt/llama-server -m /m.gguf -c ${MOETUNED_CONTEXT} -np ${MOETUNED_SLOTS}\n" in out
    assert "context 1024 on its command, by MOETUNED_CONTEXT" in " ".join(out.split())
    assert "supervise: {by: systemd, unit: llama.service}\n    context: {preferred: 1024, minimum: 1024}" in out
    assert "sudo moetunectl backend adopt llama.service --write" in out
    assert not machine.drop_in.parent.exists()
    assert machine.fake.asked() == []


def test_it_writes_reads_again_and_takes_back(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = backend_adopt.reload_units
    monkeypatch.setattr(backend_adopt, "reload_units", lambda: (real(), machine.show()))
    code, out, err = machine.run("llama", "--write", "--json")
    report: dict[str, Any] = json.loads(out)
    assert (code, err, report["done"], report["notes"]) == (0, "", True, [])
    assert machine.drop_in.read_text() == report["after"]
    assert machine.fake.asked() == [["--no-ask-password", "daemon-reload"]]
    code, out, _ = machine.run("llama", "--write")
    assert (code, "written already." in out) == (0, True)
    assert len(machine.fake.asked()) == 1
    write_variables("llama", {"MOETUNED_CONTEXT": "512"}, machine.variables)
    code, out, err = machine.run("--undo", "--dry-run", "llama.service")
    assert (code, err, "can be removed. Nothing was changed" in out) == (0, "", True)
    assert machine.drop_in.read_text() == report["after"]
    code, out, err = machine.run("--undo", "llama.service")
    assert (code, err) == (0, "")
    assert "Take `supervise:` of llama out of moetuned's config" in out
    assert not machine.drop_in.parent.exists()
    assert os.listdir(machine.variables) == []
    code, out, _ = machine.run("--undo", "llama.service")
    assert (code, "Nothing to take away" in out) == (0, True)


def test_what_the_owners_file_of_variables_says_now(machine: Machine) -> None:
    """As moetuned-backend@NAME.service is; what moetuned wrote beside it is not its owner's word."""
    said, own = machine.unit.parent / "said.env", f"{machine.variables}/llama.env"
    said.write_text("MODEL=/m.gguf\nMOETUNED_CONTEXT=16384 \n")
    machine.unit.write_text(
        "[Service]\nExecStart=llama-server --ctx-size ${MOETUNED_CONTEXT} --parallel ${MOETUNED_SLOTS}\n"
        "[X-Moetuned]\ncontext=MOETUNED_CONTEXT\nslots=MOETUNED_SLOTS\n"
    )
    write_variables("llama", {"MOETUNED_CONTEXT": "512"}, machine.variables)
    files = [f"{said} (ignore_errors=no)", f"{said.parent}/absent (ignore_errors=yes)", f"{own} (ignore_errors=yes)"]
    machine.show(EnvironmentFiles=files)
    code, out, _ = machine.run("llama")
    assert code == 0
    assert re.search(r"^context +16384 +its owner", out, re.MULTILINE)
    assert re.search(r"^slots +not said ", out, re.MULTILINE)
    assert "context: {preferred: 16384}" in out
    files[1] = f"{said.parent} (ignore_errors=yes)"
    machine.show(EnvironmentFiles=files)
    _, out, _ = machine.run("llama")
    assert re.search(r"^slots +not known ", out, re.MULTILINE)
    assert f"{said.parent}: " in out.partition("Not read")[2]


def test_a_name_of_ones_own(machine: Machine) -> None:
    code, out, _ = machine.run("llama", "--name", "glm")
    assert code == 0
    assert f"EnvironmentFile=-{machine.variables}/glm.env" in out
    assert "--name glm --write" in out
    code, _, err = machine.run_exiting("llama", "--name", "../x")
    assert (code, "../x is no name of a backend" in err) == (2, True)


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        ("llama.service", "llama"),
        ("llama@glm.service", "glm"),
        ("my\\x2dllama.service", "my-x2dllama"),
        ("a:b.service", "a-b"),
    ],
)
def test_names_of_units(unit: str, name: str) -> None:
    assert backend_adopt.name_of_unit(unit) == name


@pytest.mark.parametrize(
    "arguments",
    [("x.target",), ("x.slice",), ("a/b",), ("llama", "--write", "--undo"), ("llama", "--dry-run"), ("llama@",)],
)
def test_usage(machine: Machine, arguments: tuple[str, ...]) -> None:
    assert machine.run_exiting(*arguments)[0] == 2


def test_a_flag_that_there_is_not(machine: Machine) -> None:
    assert machine.run("-p")[0] == 2


def test_changing_needs_root(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for arguments in (("llama", "--write"), ("--undo", "llama")):
        code, _, err = machine.run_exiting(*arguments)
        assert (code, "needs root" in err) == (4, True)


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ({"LoadState": "not-found"}, 1, "has no unit llama.service that it can start (not-found)"),
        ({"LoadState": "masked"}, 1, "(masked)"),
        ({"NeedDaemonReload": "yes"}, 4, "run systemctl daemon-reload"),
        ({"FragmentPath": "/no/such"}, 1, "cannot read /no/such"),
    ],
)
def test_units_that_cannot_be_adopted(machine: Machine, more: dict[str, str], code: int, said: str) -> None:
    machine.show(**more)
    got, _, err = machine.run_exiting("llama", "--write")
    assert got == code
    assert said in err
    assert not machine.drop_in.parent.exists()


def test_a_command_that_is_not_understood_is_refused_with_what_to_do(machine: Machine) -> None:
    machine.unit.write_text("[Service]\nExecStart=/bin/sh -c 'llama-server -c 1'\n")
    code, _, err = machine.run_exiting("llama", "--write")
    assert code == 4
    assert f"EnvironmentFile=-{machine.variables}/llama.env" in err


def test_a_systemd_that_does_not_read_it_leaves_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(5, "systemctl daemon-reload was not done: it hangs")

    monkeypatch.setattr(backend_adopt, "reload_units", refuse)
    code, _, err = machine.run_exiting("llama", "--write")
    assert (code, "is as it was before" in err) == (1, True)
    assert not machine.drop_in.parent.exists()


def test_a_disk_that_is_full_leaves_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = machine.run_exiting("llama", "--write")
    assert (code, "cannot be written: No space left on device. Nothing was changed" in err) == (1, True)
    assert not machine.drop_in.parent.exists()
    assert machine.fake.asked() == []


@pytest.mark.parametrize("text", ["[Service]\nUser=me\n", ""])
def test_a_file_of_somebody_elses_is_left(machine: Machine, text: str) -> None:
    machine.drop_in.parent.mkdir(mode=0o755)
    machine.drop_in.write_text(text)
    for arguments in (("llama", "--write"), ("--undo", "llama")):
        code, _, err = machine.run_exiting(*arguments)
        assert (code, "was not written by moetuned" in err) == (4, True)
    assert machine.drop_in.read_text() == text


def test_a_link_in_its_place_is_refused(machine: Machine, tmp_path: Path) -> None:
    machine.drop_in.parent.mkdir(mode=0o755)
    machine.drop_in.symlink_to(tmp_path / "theirs")
    code, _, err = machine.run_exiting("llama", "--write")
    assert (code, "no plain file of root's alone" in err) == (4, True)
    shutil.rmtree(machine.drop_in.parent)


def test_a_unit_that_does_not_take_it_says_so(machine: Machine) -> None:
    """As where systemd did not read the file."""
    code, _, err = machine.run_exiting("llama", "--write")
    assert code == 1
    assert "note: systemd has read the drop-in, but llama.service does not take checkpoints, context" in err
