from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.udev_bus import bus_of, usb_ports

USB = "/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1.4/2-1.4:1.0/host6/target6:0:0/6:0:0:0/block/sdb"


@pytest.mark.parametrize(
    ("directory", "bus"),
    [
        ("/sys/devices/pci0000:00/0000:00:1d.0/0000:3d:00.0/nvme/nvme0/nvme0n1", "nvme"),
        ("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "nvme"),
        ("/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda", "sata"),
        (USB, "usb"),
        ("/sys/devices/platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa/block/mmcblk0", "mmc"),
        ("/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda", "virtio"),
        ("/sys/devices/pci0000:00/0000:03:00.0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sdc", "sas"),
        ("/sys/devices/platform/host2/session1/target2:0:0/2:0:0:1/block/sdd", "network"),
        ("/sys/devices/pci0000:00/0000:00:10.0/host2/target2:0:0/2:0:0:0/block/sde", "scsi"),
        ("/sys/devices/vbd-768/block/xvda", "xen"),
        ("/sys/devices/virtual/block/nbd0", "network"),
        ("/sys/devices/virtual/block/loop3", "loop"),
        ("/sys/devices/virtual/block/md0", None),
        ("", None),
    ],
)
def test_the_bus(directory: str, bus: str | None) -> None:
    assert bus_of(directory) == bus


def test_the_usb_devices_it_hangs_on_nearest_first() -> None:
    above = "/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1"
    assert usb_ports(USB) == (f"{above}/2-1.4", above)


@given(st.text())
def test_any_path_has_a_bus_or_none(text: str) -> None:
    assert bus_of(text) is None or isinstance(bus_of(text), str)
    assert all(text.startswith(port) for port in usb_ports(text))
