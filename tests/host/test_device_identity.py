from __future__ import annotations

import fnmatch

import pytest
from fakes.fake_kernel import FakeKernel, Text

from moetuned.host.device_identity import device_identity, device_match
from moetuned.host.fs import RealFS
from moetuned.schema.persisted import DeviceMatch


def disks(**attributes: dict[str, str]) -> FakeKernel:
    kernel = FakeKernel()
    for name, values in attributes.items():
        directory = f"/sys/devices/pci0000:00/0000:00:0{len(kernel.links)}.0/block/{name}"
        kernel.links[f"/sys/block/{name}"] = directory
        kernel.files[f"/sys/block/{name}"] = Text("")  # so that /sys/block lists it
        kernel.files[f"{directory}/size"] = Text("1\n")
        kernel.files |= {f"{directory}/{attribute}": Text(text) for attribute, text in values.items()}
    return kernel


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"wwid": "eui.0025385b71b0c9f1\n", "device/serial": "S4\n"}, 'ATTR{wwid}=="eui.0025385b71b0c9f1"'),
        ({"device/wwid": "t10.ATA     Samsung SSD  \n"}, 'ATTR{device/wwid}=="t10.ATA     Samsung SSD"'),
        ({"dm/uuid": "LVM-abc\n"}, 'ATTR{dm/uuid}=="LVM-abc"'),
        ({"serial": "overlay\n"}, 'ATTR{serial}=="overlay"'),
        ({"serial": 'a"*[b]|\\c\n'}, 'ATTR{serial}=="a???b???c"'),
        ({"serial": "\n", "wwid": ""}, 'DEVPATH=="/devices/pci0000:00/0000:00:00.0/block/*"'),
    ],
)
def test_a_disk_is_found_by_what_is_surest(values: dict[str, str], rule: str) -> None:
    match = device_match(disks(vda=values), "vda")
    assert isinstance(match, DeviceMatch)
    assert match.rule == rule


@pytest.mark.parametrize(
    ("values", "identity"),
    [
        ({"wwid": "eui.1\n", "device/serial": "S4\n"}, "wwid=eui.1"),
        ({"serial": "a\x1b[2J\n"}, "serial=a?[2J"),
        ({"serial": "same\n"}, None),
        ({}, None),
    ],
)
def test_what_it_is_known_again_by_is_its_own(values: dict[str, str], identity: str | None) -> None:
    assert device_identity(disks(vda=values, vdb={"serial": "same\n"}), "vda") == identity


def test_a_serial_that_two_disks_have_is_no_identity() -> None:
    kernel = disks(vda={"serial": "same\n"}, vdb={"serial": "same\n", "wwid": "w\n"})
    first, second = device_match(kernel, "vda"), device_match(kernel, "vdb")
    assert isinstance(first, DeviceMatch)
    assert isinstance(second, DeviceMatch)
    assert first.rule.startswith("DEVPATH==")
    assert "slot" in first.goes_by
    assert second.rule == 'ATTR{wwid}=="w"'


def test_a_loop_device_cannot_be_found_again() -> None:
    kernel = FakeKernel({"/sys/devices/virtual/block/loop0/size": Text("1\n")})
    kernel.links["/sys/block/loop0"] = "/sys/devices/virtual/block/loop0"
    assert "nothing about loop0 stays the same" in str(device_match(kernel, "loop0"))
    assert "nothing about gone stays the same" in str(device_match(FakeKernel(), "gone"))


def test_the_disks_of_this_machine_are_told_apart() -> None:
    fs = RealFS()
    rules = [
        match.rule
        for name in fs.list_directory("/sys/block")
        if isinstance(match := device_match(fs, name), DeviceMatch)
    ]
    assert len(rules) == len(set(rules))
    assert not [rule for rule in rules if fnmatch.fnmatch(rule, "*\n*")]
