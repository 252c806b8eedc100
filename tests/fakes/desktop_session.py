"""A logged-in user as the desktop sink finds them: /run/user/UID/bus with a real dbus-daemon, and a notification service on it."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import notification_service

_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <auth>EXTERNAL</auth>
  <listen>unix:path={path}</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


def somebody() -> pwd.struct_passwd:
    """Who is logged in: nobody where this is root (root speaks to no user's bus), else who runs the tests."""
    try:
        return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    except KeyError:
        pytest.skip("there is no account to be logged in as")


class DesktopSession:
    """A bus. `serve` starts a notification service on it; `shown` are the calls that it got since."""

    def __init__(self, run_user: str, user: pwd.struct_passwd) -> None:
        self.run_user, self.user = run_user, user
        self.path = f"{run_user}/{user.pw_uid}/bus"
        self._processes: list[subprocess.Popen[str]] = []
        self._service: subprocess.Popen[str] | None = None

    def start_bus(self) -> None:
        config = Path(self.run_user, "bus.conf")
        config.write_text(_CONFIG.format(path=self.path))
        config.chmod(0o644)
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            identity = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        bus = self._start(["dbus-daemon", f"--config-file={config}", "--nofork", "--print-address"], **identity)
        assert bus.stdout is not None
        assert bus.stdout.readline().startswith("unix:")

    def serve(self, *capabilities: str) -> None:
        """Start (anew) a notification service that says it can do so much."""
        if self._service is not None:
            _end(self._service)
        ids = (str(self.user.pw_uid), str(self.user.pw_gid))
        self._service = self._start([sys.executable, notification_service.__file__, self.path, *ids, *capabilities])
        assert self._next() == {"ready": notification_service.NAME}

    def until_notified(self) -> dict[str, Any]:
        """The next notification; what is asked before it is left out, what is closed is not."""
        while (said := self._next())["method"] == "GetCapabilities":
            pass
        return said

    def _next(self) -> dict[str, Any]:
        assert self._service is not None
        assert self._service.stdout is not None
        said: dict[str, Any] = json.loads(self._service.stdout.readline())
        return said

    def _start(self, command: list[str], **identity: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
            **identity,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self._processes):
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def desktop_session() -> Iterator[DesktopSession]:
    """One with a bus and nothing on it. Skips the test where there is no dbus-daemon."""
    if shutil.which("dbus-daemon") is None:
        pytest.skip("there is no dbus-daemon here; install dbus-daemon")
    user = somebody()
    run_user = tempfile.mkdtemp(prefix="moetuned-desktop-", dir="/tmp")  # a user's daemon must get at it
    os.chmod(run_user, 0o755)
    directory = f"{run_user}/{user.pw_uid}"
    os.mkdir(directory, 0o700)
    os.chown(directory, user.pw_uid, user.pw_gid)
    session = DesktopSession(run_user, user)
    try:
        session.start_bus()
        yield session
    finally:
        session.close()
        shutil.rmtree(run_user)
