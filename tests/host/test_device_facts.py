from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.device_facts import device_facts
from moetuned.host.fs import RealFS
from moetuned.schema.device import DeviceFacts

USB = "sys/devices/pci0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb"


def disk(root: Path, directory: str, **files: str) -> RealFS:
    for name, text in files.items():
        place = root / directory / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    link = root / "sys/block" / directory.rpartition("/")[2]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(root / directory, link.parent))
    return RealFS(str(root))


def test_a_rotating_usb_2_disk(tmp_path: Path) -> None:
    fs = disk(tmp_path, USB, queue__rotational="1\n", device__model="Elements 2621  \n", serial="S1\n")
    (tmp_path / "sys/devices/pci0/usb2/2-1/speed").write_text("480\n")
    assert device_facts(fs, "sdb") == DeviceFacts(
        "sdb", "Elements 2621", "usb", rotational=True, usb_megabits=480, identity="serial=S1"
    )
    assert device_facts(fs, "sdb", {"ID_MODEL": "WD_Elements\x1b"}).model == "WD Elements?"


@pytest.mark.parametrize(("kind", "card"), [("SD\n", True), ("MMC\n", False), ("", None)])
def test_a_card_and_soldered_memory(tmp_path: Path, kind: str, card: bool | None) -> None:
    directory = "sys/devices/platform/mmc_host/mmc0/mmc0:1/block/mmcblk0"
    fs = disk(tmp_path, directory, queue__rotational="0\n", device__type=kind, device__name="SC64G\n")
    assert device_facts(fs, "mmcblk0") == DeviceFacts("mmcblk0", "SC64G", "mmc", rotational=False, sd_card=card)


def test_what_a_hypervisor_says_of_rotation_is_not_believed(tmp_path: Path) -> None:
    fs = disk(tmp_path, "sys/devices/pci0/virtio1/block/vda", queue__rotational="1\n")
    assert device_facts(fs, "vda") == DeviceFacts("vda", None, "virtio", virtual=True)


def test_one_that_is_gone_or_says_nothing(tmp_path: Path) -> None:
    assert device_facts(RealFS(str(tmp_path)), "sda") == DeviceFacts("sda")
    fs = disk(tmp_path, "sys/devices/virtual/block/loop0", queue__rotational="1\n")
    assert device_facts(fs, "loop0") == DeviceFacts("loop0", None, "loop")
