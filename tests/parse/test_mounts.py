from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.mounts import is_read_only

DOCKER = """overlay / overlay rw,relatime 0 0
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
sysfs /sys sysfs ro,nosuid,nodev,noexec,relatime 0 0
proc /proc/sys proc ro,nosuid,nodev,noexec,relatime 0 0
tmpfs /proc/sysrq-trigger tmpfs ro 0 0
"""


@pytest.mark.parametrize(
    ("path", "read_only"),
    [
        ("/proc/sys/vm/dirty_ratio", True),
        ("/proc/sys", True),
        ("/proc/sysctl", False),
        ("/proc/meminfo", False),
        ("/sys/kernel/mm/transparent_hugepage/enabled", True),
        ("/var/lib", False),
    ],
)
def test_a_container(path: str, read_only: bool) -> None:
    assert is_read_only(DOCKER, path) is read_only


def test_a_later_mount_covers_an_earlier_one() -> None:
    assert not is_read_only(DOCKER + "proc /proc/sys proc rw 0 0\n", "/proc/sys/vm/dirty_ratio")


def test_spaces_in_a_mount_point_and_words_that_contain_ro() -> None:
    assert is_read_only("none /mnt/a\\040b ext4 ro,noatime 0 0\n", "/mnt/a b/c")
    assert not is_read_only("none /mnt ext4 rw,errors=remount-ro 0 0\n", "/mnt/c")


@pytest.mark.parametrize("table", ["", "\n", "one two\n", "a b c"])
def test_an_unknown_mount_is_not_read_only(table: str) -> None:
    assert not is_read_only(table, "/proc/sys/vm")


@given(st.text(), st.text().map(lambda text: "/" + text))
def test_any_table_is_answered(table: str, path: str) -> None:
    assert is_read_only(table, path) in (True, False)
