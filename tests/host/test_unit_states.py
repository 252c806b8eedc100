"""What systemctl says of units, and what is made of none or of a half answer; a real one is asked in test_outside_sandbox_booted.py."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from moetuned.host import unit_states


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        (b"Id=a.service\nActiveState=inactive\n\nActiveState=active\nId=b.service\n", {"a.service"}),
        (b"Id=a.service\nActiveState=activating\n\nId=b.service\nActiveState=failed\n", {"b.service"}),
        (b"Id=c.service\nActiveState=inactive\n", set()),
        (b"rubbish\n\n\n", set()),
        (b"", set()),
        (None, set()),
    ],
)
def test_only_what_systemd_says_has_ended(monkeypatch: pytest.MonkeyPatch, said: bytes | None, ended: set[str]) -> None:
    def run(command: tuple[str, ...], **_: object) -> SimpleNamespace:
        assert command[-2:] == ("a.service", "b.service")
        if said is None:
            raise subprocess.TimeoutExpired(command, 10)
        return SimpleNamespace(stdout=said)

    monkeypatch.setattr(unit_states, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(unit_states.subprocess, "run", run)
    assert unit_states.ended_units(["a.service", "b.service"]) == ended


def test_without_systemctl_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_states, "find_program", lambda _name: None)
    assert unit_states.ask_manager("show", "--", "a.service") is None
    assert unit_states.ended_units(["a.service"]) == frozenset()
