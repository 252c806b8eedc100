from __future__ import annotations

import errno

import pytest
from fakes.fake_kernel import FakeKernel, Text, add_disk, usual_kernel

from moetuned.host.fs import RealFS
from moetuned.host.swap_home import present_swap_warnings, swap_home
from moetuned.schema.swap import SwapPlace

HEAD = "Filename\tType\tSize\tUsed\tPriority\n"
NUMBERS = {"/dev/sda": (8, 0), "/fast/swapfile": (259, 0)}


def device_of(path: str) -> tuple[int, int]:
    if path not in NUMBERS:
        raise FileNotFoundError(2, "No such file or directory", path)
    return NUMBERS[path]


@pytest.fixture
def kernel() -> FakeKernel:
    made = usual_kernel()
    add_disk(made, "sda", "8:0", 128, rotational=True)
    add_disk(made, "nvme0n1", "259:0", 128, "/fast")
    table = made.files["/proc/self/mountinfo"].read()
    made.files["/proc/self/mountinfo"] = Text(table + "1 1 0:6 / /dev rw - devtmpfs devtmpfs rw\n")
    return made


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ("", SwapPlace.NONE),
        ("/dev/zram0 partition 1000 0 100\n", SwapPlace.ZRAM),
        ("/fast/swapfile file 1000 0 -2\n", SwapPlace.SSD),
        ("/dev/sda partition 1000 0 -2\n", SwapPlace.ROTATIONAL),
        ("/dev/zram0 partition 1000 0 100\n/fast/swapfile file 1000 0 -2\n", SwapPlace.MIXED),
        ("/dev/gone partition 1000 0 -2\n", SwapPlace.UNKNOWN),
    ],
)
def test_where_swap_is(kernel: FakeKernel, lines: str, place: SwapPlace) -> None:
    kernel.files["/proc/swaps"] = Text(HEAD + lines)
    assert swap_home(kernel, device_of).place is place


def test_a_kernel_without_swap_and_one_that_does_not_say(kernel: FakeKernel) -> None:
    kernel.fail("read", "/proc/swaps", errno.EIO)
    found = swap_home(kernel, device_of)
    assert (found.place, "Input/output error" in found.reason) == (SwapPlace.UNKNOWN, True)
    del kernel.files["/proc/swaps"]
    assert swap_home(kernel, device_of).place is SwapPlace.NONE


def test_this_machine_has_an_answer() -> None:
    found = swap_home(RealFS())
    assert found.reason
    if len(RealFS().read_text("/proc/swaps").splitlines()) == 1:
        assert found.place is SwapPlace.NONE


def test_what_is_wrong_with_the_swap_that_is_on(kernel: FakeKernel) -> None:
    kernel.files["/proc/swaps"] = Text(HEAD + "/dev/zram0 partition 1000 0 100\n")
    assert present_swap_warnings(kernel) == ()
    kernel.files["/sys/module/zswap/parameters/enabled"] = Text("Y\n")
    assert "compressed twice" in present_swap_warnings(kernel)[0]
    kernel.fail("read", "/proc/swaps", errno.EIO)
    assert present_swap_warnings(kernel) == ()
