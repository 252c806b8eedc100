from __future__ import annotations

import pytest

from moetuned.decide.device_fitness import unsuitable
from moetuned.schema.device import DeviceFacts


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        (DeviceFacts("sda", "ST4000", "sata", rotational=True), "rotating disk (sda, ST4000)"),
        (DeviceFacts("sdb", bus="usb", rotational=False, usb_megabits=480), "USB 2 connection (sdb)"),
        (DeviceFacts("sdb", bus="usb", rotational=True, usb_megabits=12), "USB 2"),
        (DeviceFacts("mmcblk0", "SC64G", "mmc", rotational=False, sd_card=True), "an SD card (mmcblk0, SC64G)"),
        (DeviceFacts("mmcblk0", bus="mmc", sd_card=False), "eMMC"),
        (DeviceFacts("mmcblk0", bus="mmc"), "SD card or eMMC"),
    ],
)
def test_what_it_should_not_be_run_from(facts: DeviceFacts, part: str) -> None:
    said = unsuitable([DeviceFacts("nvme0n1", bus="nvme", rotational=False), facts], None)
    assert said is not None
    assert part in said
    assert "move the model" in said


@pytest.mark.parametrize(
    "facts",
    [
        DeviceFacts("sda"),
        DeviceFacts("vda", bus="virtio", virtual=True),
        DeviceFacts("sda", bus="sata", rotational=False),
        DeviceFacts("sdb", bus="usb", rotational=None, usb_megabits=5000),
        DeviceFacts("sdb", bus="usb"),
    ],
)
def test_nothing_is_said_of_what_is_well_or_unknown(facts: DeviceFacts) -> None:
    assert unsuitable([facts], None) is None
    assert unsuitable([], None) is None


def test_a_network() -> None:
    assert "over the network (nfs4)" in (unsuitable([], "nfs4") or "")
