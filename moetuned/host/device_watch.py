"""Tells when block devices come and go: udev's monitor, or the kernel's own messages where no udev runs (a container).

libudev is loaded only here and only when somebody watches. Measured in a process that has loaded the rest of the daemon: 0.5 MiB.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

_UDEV_RUNS = "/run/udev/control"
_MOST_AT_ONCE = 256


class DeviceWatchError(Exception):
    """Nothing can be told; the text is one sentence."""


class DeviceEvent(msgspec.Struct, frozen=True):
    """Something happened to the device `name` of /sys/class/block. `action`: add | remove | change | move | online | offline."""

    action: str
    name: str


class DeviceWatch:
    """Belongs to one thread. Watch `fileno()` for reading."""

    def __init__(self, udev_control: str = _UDEV_RUNS) -> None:
        """Raises DeviceWatchError where libudev or the netlink socket cannot be had."""
        try:
            import pyudev
        except ImportError as error:
            raise DeviceWatchError(f"libudev cannot be loaded: {error}") from None
        self.udev_runs = os.path.exists(udev_control)
        self._pyudev: Any = pyudev
        try:
            self._context = pyudev.Context()
            self._monitor = pyudev.Monitor.from_netlink(self._context, "udev" if self.udev_runs else "kernel")
            self._monitor.filter_by("block")
            self._monitor.start()
        except (OSError, ValueError) as error:
            raise DeviceWatchError(f"devices that come and go cannot be seen: {error}") from None

    def fileno(self) -> int:
        """Readable when `events` has something to tell."""
        return int(self._monitor.fileno())

    def events(self) -> tuple[DeviceEvent, ...]:
        """What happened since it was asked last, at most 256 at once. Does not wait; never raises."""
        found: list[DeviceEvent] = []
        try:
            while len(found) < _MOST_AT_ONCE and (device := self._monitor.poll(timeout=0)) is not None:
                found.append(DeviceEvent(str(device.action), str(device.sys_name)))
        except OSError:  # messages were lost (ENOBUFS): whoever asks looks again
            found.append(DeviceEvent("change", ""))
        return tuple(found)

    def properties(self, name: str) -> dict[str, str]:
        """What udev's database says of the device `name` of /sys/block; {} when nothing. Never raises."""
        try:
            device = self._pyudev.Devices.from_name(self._context, "block", name)
            return {str(key): str(value) for key, value in device.properties.items()}
        except (self._pyudev.DeviceNotFoundError, OSError, UnicodeError, ValueError):
            return {}

    def close(self) -> None:
        """Let go of the socket (libudev closes it with its last reference)."""
        self._monitor = None
