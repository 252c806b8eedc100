"""Each way in which no daemon answers has its own sentence, and each says what to type."""

from __future__ import annotations

import pytest
from fakes.booted_systemd import BootedSystemd

from moetuned.api.errors import DaemonUnreachable
from moetuned.api.socket_path import DEFAULT_SOCKET
from moetuned.cli import daemon_absence
from moetuned.cli.daemon_absence import explained, said_of
from moetuned.host.system_program import ProgramError


def unit(
    active: str = "inactive", enabled: str = "enabled", load: str = "loaded", result: str = "success"
) -> dict[str, str]:
    return {"LoadState": load, "ActiveState": active, "UnitFileState": enabled, "Result": result}


@pytest.mark.parametrize(
    ("found", "what", "command"),
    [
        (unit(), "is not running. Start it", "sudo systemctl start moetuned"),
        (unit(enabled="disabled"), "is not enabled", "sudo systemctl enable --now moetuned"),
        (unit("failed", result="exit-code"), "failed (it ended with an error)", "journalctl -u moetuned -e"),
        (unit("failed", result="oom-kill"), "because memory was full", "sudo systemctl restart moetuned"),
        (unit("activating"), "is being started right now", "journalctl -u moetuned -e"),
        (unit("active"), "its socket is not there", "sudo systemctl restart moetuned"),
        (unit(load="masked"), "is masked", "sudo systemctl unmask moetuned"),
        (unit(load="not-found", enabled=""), "is not installed as a service", "sudo moetuned run"),
        ({}, "is not running", "sudo systemctl start moetuned"),
    ],
)  # fmt: skip
def test_what_the_unit_is(found: dict[str, str], what: str, command: str) -> None:
    sentence = said_of(found)
    assert what in sentence
    assert command in sentence


def test_who_does_not_answer_in_time_may_run() -> None:
    assert explained(DaemonUnreachable("it hangs")) == "it hangs"


def test_a_socket_of_ones_own_is_no_matter_of_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_absence, "_unit", lambda: pytest.fail("asked"))
    assert explained(DaemonUnreachable("", "/tmp/x.sock")).endswith(
        "(nobody answers at /tmp/x.sock). Start it: moetuned run"
    )


@pytest.mark.parametrize("booted", [False, True])
def test_systemd_is_asked_only_where_it_runs(monkeypatch: pytest.MonkeyPatch, booted: bool) -> None:
    asked = []

    def ask(name: str, arguments: tuple[str, ...], *_: object) -> str:
        asked.append((name, *arguments))
        return "LoadState=loaded\nActiveState=failed\nResult=timeout\nnonsense\n"

    monkeypatch.setattr("moetuned.host.systemd_booted.is_booted", lambda: booted)
    monkeypatch.setattr("moetuned.host.system_program.ask_program", ask)
    sentence = explained(DaemonUnreachable("", DEFAULT_SOCKET))
    assert ("it did not start in time" in sentence) is booted
    assert ("sudo moetuned run" in sentence) is not booted
    assert bool(asked) is booted


def test_a_systemd_that_does_not_answer_leaves_the_plain_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> str:
        raise ProgramError("systemctl did not end within 2 s")

    monkeypatch.setattr("moetuned.host.systemd_booted.is_booted", lambda: True)
    monkeypatch.setattr("moetuned.host.system_program.ask_program", ask)
    assert (
        explained(DaemonUnreachable("", DEFAULT_SOCKET))
        == "moetuned is not running. Start it: sudo systemctl start moetuned"
    )


@pytest.mark.systemd
def test_a_real_systemd_is_asked(booted_systemd: BootedSystemd) -> None:
    missing = booted_systemd.moetunectl("status", check=False)
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "is not installed as a service" in missing.stderr
    booted_systemd.write("/etc/systemd/system/moetuned.service", "[Service]\nExecStart=/bin/false\nType=oneshot\n")
    booted_systemd.systemctl("daemon-reload")
    try:
        booted_systemd.systemctl("start", "moetuned.service", check=False)
        assert "its service failed" in booted_systemd.moetunectl("check", check=False).stdout
        booted_systemd.systemctl("reset-failed", "moetuned.service")
        assert "moetuned is not running" in booted_systemd.moetunectl("status", check=False).stderr
    finally:
        booted_systemd.path("/etc/systemd/system/moetuned.service").unlink()
        booted_systemd.systemctl("daemon-reload")
