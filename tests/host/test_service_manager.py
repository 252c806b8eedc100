"""Properties of units: what is asked of systemctl, and what is never asked. A program of the test's own stands in for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from moetuned.host import program_search, service_manager, systemd_booted
from moetuned.host.service_manager import is_unit, property_of, set_property

FAKE = """#!{python} -I
import json, os, sys
with open({record!r}, "w") as file:
    json.dump([sys.argv[1:], dict(os.environ)], file)
print("Failed to set unit properties: Unit has gone", file=sys.stderr)
sys.exit({code})
"""


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with systemd, as far as is looked."""
    monkeypatch.setattr(systemd_booted, "BOOTED", str(tmp_path))
    monkeypatch.setattr(program_search, "DIRECTORIES", (str(tmp_path),))
    return tmp_path


def systemctl(directory: Path, code: int = 0) -> Path:
    record = directory / "asked.json"
    program = directory / "systemctl"
    program.write_text(FAKE.format(python=sys.executable, record=str(record), code=code))
    program.chmod(0o755)
    return record


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("8589934592", "MemoryLow=8589934592"),
        ("0", "MemoryLow=0"),
        ("max", "MemoryLow=infinity"),
        ("419430400", "MemoryMin=419430400"),
        ("0", "MemoryMin=0"),
    ],
)
def test_one_property_until_the_next_boot(
    booted: Path, monkeypatch: pytest.MonkeyPatch, value: str, written: str
) -> None:
    record = systemctl(booted)
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/secret")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/tmp/elsewhere")
    set_property("system-llama.slice", written.partition("=")[0], value)
    arguments, environment = json.loads(record.read_text())
    assert arguments == ["--no-ask-password", "set-property", "--runtime", "--", "system-llama.slice", written]
    assert set(environment) - {"LC_CTYPE"} == {"PATH", "LC_ALL"}, "nothing of the daemon's own"


def test_what_systemctl_says_is_the_reason(booted: Path) -> None:
    systemctl(booted, 1)
    with pytest.raises(OSError, match=r"would not set IOWeight=200 of llama\.service: .*: Failed to set .* has gone"):
        set_property("llama.service", "IOWeight", "200")


def test_a_systemctl_that_hangs(booted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = booted / "systemctl"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(program_search, "DIRECTORIES", (str(booted), "/usr/bin", "/bin"))
    monkeypatch.setattr(service_manager, "_SECONDS", 0.05)
    with pytest.raises(
        OSError, match=r"would not set IOWeight=200 of llama\.service: systemctl did not end within 0 s"
    ):
        set_property("llama.service", "IOWeight", "200")


def test_no_systemctl(booted: Path) -> None:
    with pytest.raises(OSError, match="there is no program systemctl"):
        set_property("llama.service", "IOWeight", "200")


def test_no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_booted, "BOOTED", "/nowhere/at/all")
    with pytest.raises(OSError, match="which does not run here"):
        set_property("llama.service", "MemoryLow", "1")


@pytest.mark.parametrize(
    "name",
    ["", "llama", "--force.service", "a b.service", "a;b.service", "a/b.service", "a.service\n", "../x.slice", "a.mount",
     "x" * 300 + ".service"],
)  # fmt: skip
def test_names_that_no_unit_has(booted: Path, name: str) -> None:
    record = systemctl(booted)
    assert not is_unit(name)
    with pytest.raises(ValueError, match="is no unit"):
        set_property(name, "MemoryLow", "1")
    assert not record.exists()


@pytest.mark.parametrize(
    "name", ["llama.service", "user@1000.service", r"dev-sda\x2d1.slice", "-.slice", "run-r1.scope"]
)
def test_names_that_units_have(name: str) -> None:
    assert is_unit(name) is not name.startswith("-"), "the root slice is never changed"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ExecStart", "1"),
        ("MemoryLow", "-1"),
        ("MemoryLow", "1G"),
        ("MemoryMin", "1G"),
        ("MemoryMax", "1"),
        ("IOWeight", ""),
        ("", "1"),
    ],
)
def test_nothing_else_is_ever_set(booted: Path, name: str, value: str) -> None:
    record = systemctl(booted)
    with pytest.raises(ValueError, match="nothing that moetuned sets"):
        set_property("llama.service", name, value)
    assert not record.exists()


@pytest.mark.parametrize(
    ("said", "value"),
    [("4096", "4096"), ("infinity", "max"), ("[not set]", None), ("", None), ("-1", None), ("1\n2", None)],
)
def test_what_systemd_would_set_a_property_to(booted: Path, said: str, value: str | None) -> None:
    program = booted / "systemctl"
    program.write_text(
        f"#!{sys.executable} -I\nimport sys\n"
        "assert sys.argv[1:] == ['show', '--property=MemoryMin', '--value', '--', 'llama.service']\n"
        f"print({said!r})\n"
    )
    program.chmod(0o755)
    assert property_of("llama.service", "MemoryMin") == value


def test_no_answer_is_no_value(booted: Path) -> None:
    record = systemctl(booted, 1)
    with pytest.raises(OSError, match=r"would not say MemoryMin of llama\.service: .* has gone"):
        property_of("llama.service", "MemoryMin")
    record.unlink()
    for unit, name in (("--force.service", "MemoryMin"), ("llama.service", "ExecStart")):
        with pytest.raises(ValueError, match="nothing that moetuned asks for"):
            property_of(unit, name)
    assert not record.exists()
