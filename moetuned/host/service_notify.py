"""The service manager's notification protocol (sd_notify(3)): ready, status, watchdog, reloading, stopping.

Without NOTIFY_SOCKET nothing is sent. Types: READY only after a whole tick; WATCHDOG only at the end of a completed tick.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import sdnotify

STATUS_LIMIT_CHARACTERS = 400


class ServiceNotifier:
    """Speaks for this process. Owns no state that matters: each call is one datagram."""

    def __init__(self, environ: Mapping[str, str] | None = None, send: Callable[[str], None] | None = None) -> None:
        """`environ`: None for this process's own. `send`: what sends a message, for tests."""
        environ = os.environ if environ is None else environ
        self.watchdog_seconds = watchdog_seconds(environ, os.getpid())
        """Time within which WATCHDOG has to be sent; None: no watchdog. Send at half of it."""
        self._send: Callable[[str], None] | None = None
        if environ.get("NOTIFY_SOCKET"):
            self._send = send or sdnotify.SystemdNotifier().notify

    @property
    def heard(self) -> bool:
        """Whether anybody listens: without NOTIFY_SOCKET nothing need be made up to be sent."""
        return self._send is not None

    def ready(self, status: str = "") -> None:
        """Started, or reloaded."""
        self._notify("READY=1", status)

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._notify(status=status)

    def watchdog(self, status: str = "") -> None:
        """A tick was completed. Nothing is sent when there is no watchdog and no status."""
        if self.watchdog_seconds is not None:
            self._notify("WATCHDOG=1", status)
        elif status:
            self._notify(status=status)

    def reloading(self) -> None:
        """Reading the configuration again; `ready` ends it. The time is what Type=notify-reload asks for."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str = "") -> None:
        """On the way out."""
        self._notify("STOPPING=1", status)

    def extend_timeout(self, seconds: float) -> None:
        """Starting, reloading or stopping takes this much longer from now."""
        self._notify(f"EXTEND_TIMEOUT_USEC={max(0, int(seconds * 1_000_000))}")

    def _notify(self, message: str = "", status: str = "") -> None:
        if self._send is None:
            return
        # A newline would begin another assignment.
        line = " ".join(status.split())[:STATUS_LIMIT_CHARACTERS]
        self._send("\n".join(part for part in (message, f"STATUS={line}" if line else "") if part))


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """The watchdog's interval if it is meant for process `pid` (sd_watchdog_enabled(3)); None when there is none."""
    text, meant_for = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not (text.isascii() and text.isdigit()) or int(text) == 0 or (meant_for and meant_for != str(pid)):
        return None
    return int(text) / 1_000_000
