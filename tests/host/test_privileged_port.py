from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moetuned.host import privileged_port
from moetuned.host.bounded_program import Ended
from moetuned.host.privileged_port import first_open_port, unit_cannot_take


@pytest.mark.parametrize(("text", "port"), [("0\n", 0), ("1024\n", 1024), ("80\n", 80), ("rubbish", 1024), ("", 1024)])
def test_the_kernel_says_where_ports_for_everybody_begin(tmp_path: Path, text: str, port: int) -> None:
    (tmp_path / "start").write_text(text)
    assert first_open_port(str(tmp_path / "start")) == port


def test_as_usual_where_it_does_not() -> None:
    assert first_open_port("/proc/none") == 1024


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What is asked of systemd; see `says` for its answer."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(privileged_port, "first_open_port", lambda: 1024)
    monkeypatch.setattr(privileged_port, "is_booted", lambda: True)
    monkeypatch.setattr(privileged_port, "find_program", lambda name: f"/usr/bin/{name}")
    return commands


def says(monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]], said: Ended | Exception) -> None:
    def run_bounded(command: tuple[str, ...], *_: object, **__: object) -> Ended:
        asked.append(command)
        if isinstance(said, Exception):
            raise said
        return said

    monkeypatch.setattr(privileged_port, "run_bounded", run_bounded)


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        (Ended(0, False, b"cap_kill cap_sys_nice\n", False), True),
        (Ended(0, False, b"cap_kill cap_net_bind_service\n", False), False),
        (Ended(0, False, b"\n", False), False),
        (Ended(1, False, b"cap_kill\n", False), False),
        (Ended(None, True, b"", False), False),
        (subprocess.SubprocessError(), False),
        (FileNotFoundError(), False),
    ],
)
def test_only_what_systemd_says_is_refused(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]], said: Ended | Exception, refused: bool
) -> None:
    says(monkeypatch, asked, said)
    found = unit_cannot_take(80)
    assert (found is not None) is refused
    assert found is None or "CapabilityBoundingSet=CAP_NET_BIND_SERVICE" in found
    assert len(asked) == 1


def test_other_ports_and_machines_without_systemd_ask_nobody(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]
) -> None:
    says(monkeypatch, asked, Ended(0, False, b"cap_kill\n", False))
    assert [unit_cannot_take(port) for port in (0, 1024, 9843)] == [None] * 3
    monkeypatch.setattr(privileged_port, "is_booted", lambda: False)
    assert unit_cannot_take(80) is None
    assert asked == []
