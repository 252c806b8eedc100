"""Which bus a block device is on, from its directory under /sys/devices."""

from __future__ import annotations

import re

_USB_PORT = re.compile(r"\d+-\d+(\.\d+)*")
_PARTS = (
    (re.compile(r"usb\d+"), "usb"),
    (re.compile(r"mmc_host"), "mmc"),
    (re.compile(r"nvme(-subsystem|-fabrics)?"), "nvme"),
    (re.compile(r"virtio\d+"), "virtio"),
    (re.compile(r"vbd-\d+"), "xen"),
    (re.compile(r"ata\d+"), "sata"),
    (re.compile(r"end_device-[\d:]+"), "sas"),
    (re.compile(r"session\d+"), "network"),  # iSCSI
    (re.compile(r"rport-[\d:-]+"), "network"),  # Fibre Channel
    (re.compile(r"target\d+:\d+:\d+"), "scsi"),
)
_NAMES = (("nvme", "nvme"), ("nbd", "network"), ("rbd", "network"), ("loop", "loop"))


def bus_of(directory: str) -> str | None:
    """One of nvme | sata | sas | scsi | usb | mmc | virtio | xen | network | loop; None where the path does not say."""
    parts = directory.strip("/").split("/")
    for pattern, bus in _PARTS:
        if any(pattern.fullmatch(part) for part in parts[:-1]):
            return bus
    return next((bus for start, bus in _NAMES if parts[-1].startswith(start)), None)


def usb_ports(directory: str) -> tuple[str, ...]:
    """Directories of the USB devices it hangs on, the nearest first; their file `speed` is in megabits a second."""
    parts = directory.split("/")
    return tuple(
        "/".join(parts[: position + 1])
        for position in range(len(parts) - 1, 0, -1)
        if _USB_PORT.fullmatch(parts[position])
    )
