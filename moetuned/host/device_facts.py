"""What a block device is: from /sys, and what udev's database adds where there is one (a container has none)."""

from __future__ import annotations

from collections.abc import Mapping

from moetuned.host.block_devices import is_virtual
from moetuned.host.device_identity import device_identity
from moetuned.host.fs import HostFS, read_or_none
from moetuned.parse.kernel_numbers import whole_number
from moetuned.parse.udev_bus import bus_of, usb_ports
from moetuned.schema.device import DeviceFacts

_LIMIT_BYTES = 256
_LONGEST = 64


def device_facts(fs: HostFS, name: str, udev: Mapping[str, str] | None = None) -> DeviceFacts:
    """Facts of the device `name` of /sys/block. `udev`: its properties in udev's database. Never raises; what is not said is None."""
    try:
        directory = fs.resolve_link(f"/sys/block/{name}")
    except OSError:
        return DeviceFacts(name)
    virtual, turns = is_virtual(fs, name), _text(fs, f"/sys/block/{name}/queue/rotational")
    bus = bus_of(directory)
    card = {"SD": True, "MMC": False}.get(_text(fs, f"/sys/block/{name}/device/type") or "") if bus == "mmc" else None
    speeds = (whole_number(_text(fs, f"{port}/speed") or "") for port in usb_ports(directory))
    return DeviceFacts(
        name=name,
        model=_model(fs, name, udev or {}),
        bus=bus,
        rotational=None if virtual or bus == "loop" else {"0": False, "1": True}.get(turns or ""),
        virtual=virtual,
        usb_megabits=min((speed for speed in speeds if speed), default=None),
        sd_card=card,
        identity=device_identity(fs, name),
    )


def _model(fs: HostFS, name: str, udev: Mapping[str, str]) -> str | None:
    said = udev.get("ID_MODEL", "").replace("_", " ")
    model = said or _text(fs, f"/sys/block/{name}/device/model") or _text(fs, f"/sys/block/{name}/device/name") or ""
    shown = "".join(letter if letter.isprintable() else "?" for letter in model.strip())
    return shown[:_LONGEST] or None


def _text(fs: HostFS, path: str) -> str | None:
    text = read_or_none(fs, path, _LIMIT_BYTES)
    return None if text is None else text.strip()
