"""How a udev rule finds one disk again after a reboot, when names like sda may have been dealt out anew (udev(7))."""

from __future__ import annotations

import re

from moetuned.host.fs import HostFS
from moetuned.schema.persisted import DeviceMatch

# Attributes of /sys/block/<name> that the device itself carries, the surest first.
_IDENTITIES = (
    ("dm/uuid", "its device-mapper UUID"),
    ("md/uuid", "its RAID UUID"),
    ("wwid", "its world wide identifier"),
    ("device/wwid", "its world wide identifier"),
    ("device/cid", "its card identifier"),
    ("serial", "its serial number"),
    ("device/serial", "its serial number"),
)
_NO_PATTERN = re.compile(r"[^A-Za-z0-9 ._:+=,/@-]")
_MOST_DISKS = 1000
_LIMIT_BYTES = 512


def device_identity(fs: HostFS, name: str) -> str | None:
    """Text by which the disk `name` of /sys/block is known again wherever it is plugged in; None when it says nothing of its own.

    A slot is no identity: another disk may sit in it the next time. Never raises; printable.
    """
    try:
        others = [other for other in fs.list_directory("/sys/block")[:_MOST_DISKS] if other != name]
    except OSError:
        return None
    for attribute, _ in _IDENTITIES:
        value = _attribute(fs, name, attribute)
        if value and all(_attribute(fs, other, attribute) != value for other in others):
            return "".join(letter if letter.isprintable() else "?" for letter in f"{attribute}={value}")
    return None


def device_match(fs: HostFS, name: str) -> DeviceMatch | str:
    """The matches of a rule that fit the disk `name` of /sys/block and no other here; a sentence on why there are none.

    By what the device says of itself; else by the slot it sits in, where it has one. Never raises.
    """
    try:
        others = [other for other in fs.list_directory("/sys/block")[:_MOST_DISKS] if other != name]
    except OSError:
        others = []
    for attribute, goes_by in _IDENTITIES:
        value = _attribute(fs, name, attribute)
        if value and all(_attribute(fs, other, attribute) != value for other in others):
            return DeviceMatch(f'ATTR{{{attribute}}}=="{_literal(value)}"', goes_by)
    try:
        slot = fs.resolve_link(f"/sys/block/{name}").rpartition("/")[0].removeprefix("/sys")
    except OSError:
        slot = ""
    if slot.startswith("/devices/") and not slot.startswith("/devices/virtual/"):
        return DeviceMatch(f'DEVPATH=="{_literal(slot)}/*"', "the slot it is in, as it has no identifier of its own")
    return f"nothing about {name} stays the same over a reboot that a udev rule could find it by; the daemon sets it at each start"


def _attribute(fs: HostFS, name: str, attribute: str) -> str:
    try:
        return fs.read_text(f"/sys/block/{name}/{attribute}", _LIMIT_BYTES).rstrip().replace("\n", "?")
    except OSError:
        return ""


def _literal(text: str) -> str:
    """`text` for the right side of a match: what a pattern would read as more than itself matches as any character."""
    return _NO_PATTERN.sub("?", text)
