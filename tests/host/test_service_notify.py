"""Notifications to the service manager."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from moetuned.host.service_notify import STATUS_LIMIT_CHARACTERS, ServiceNotifier, watchdog_seconds


def spoken(environ: dict[str, str]) -> tuple[ServiceNotifier, list[str]]:
    sent: list[str] = []
    return ServiceNotifier(environ, sent.append), sent


def test_every_message() -> None:
    notifier, sent = spoken({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000"})
    notifier.ready("watching glm")
    notifier.status("steady")
    notifier.watchdog()
    notifier.watchdog("steady")
    notifier.stopping()
    notifier.extend_timeout(90.5)
    assert sent == [
        "READY=1\nSTATUS=watching glm",
        "STATUS=steady",
        "WATCHDOG=1",
        "WATCHDOG=1\nSTATUS=steady",
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=90500000",
    ]
    assert notifier.watchdog_seconds == 30.0


def test_reloading_carries_the_time() -> None:
    notifier, sent = spoken({"NOTIFY_SOCKET": "/x"})
    notifier.reloading()
    first, second = sent[0].split("\n")
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdigit()


def test_a_status_is_one_short_line() -> None:
    notifier, sent = spoken({"NOTIFY_SOCKET": "/x"})
    notifier.status("a\nREADY=1\r\n" + "x" * 1000)
    assert "\n" not in sent[0]
    assert sent[0].startswith("STATUS=a READY=1 x")
    assert len(sent[0]) == len("STATUS=") + STATUS_LIMIT_CHARACTERS


def test_without_a_watchdog_none_is_fed() -> None:
    notifier, sent = spoken({"NOTIFY_SOCKET": "/x"})
    notifier.watchdog()
    notifier.watchdog("steady")
    assert sent == ["STATUS=steady"]


def test_without_a_service_manager_nothing_is_sent() -> None:
    notifier, sent = spoken({"WATCHDOG_USEC": "1"})
    notifier.ready()
    notifier.watchdog()
    notifier.reloading()
    assert sent == []


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "2000000"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "7"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdogs_interval(environ: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environ, 7) == seconds


def test_a_real_socket_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(10)
        monkeypatch.setitem(os.environ, "NOTIFY_SOCKET", path)
        ServiceNotifier().ready("well")
        assert receiver.recv(4096) == b"READY=1\nSTATUS=well"
