"""Mounts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.mountinfo import Mount, mount_of, parse_mountinfo

TEXT = """27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 27 0:45 /sub\\040dir /mnt/with\\040space rw - btrfs /dev/mapper/vg-lv rw,subvolid=256
cut 1 2
41 27 xx:1 / /bad rw - ext4 /dev/x rw
42 27 0:99 / /mnt rw - tmpfs
"""


def test_fields_with_and_without_optional_ones() -> None:
    mounts = parse_mountinfo(TEXT)
    assert [mount.point for mount in mounts] == ["/", "/sys/fs/cgroup/memory", "/mnt/with space"]
    assert mounts[0] == Mount(254, 0, "/", "/", "ext4", "/dev/vda", frozenset({"rw", "discard"}))
    assert mounts[2].root == "/sub dir"


@pytest.mark.parametrize(
    ("kind", "points"), [("cgroup", ["/sys/fs/cgroup/memory"]), ("btr", ["/mnt/with space"]), ("xfs", [])]
)
def test_only_file_systems_of_a_kind(kind: str, points: list[str]) -> None:
    assert [mount.point for mount in parse_mountinfo(TEXT, kind)] == points


def test_the_longest_mount_point_above_a_path_and_the_last_of_equal_ones() -> None:
    mounts = (*parse_mountinfo(TEXT), Mount(0, 7, "/", "/mnt/with space", "tmpfs", "none", frozenset()))
    found = [mount_of(mounts, path) for path in ("/mnt/with space/a", "/mnt/with spaces", "/sys/fs/cgroup/memory")]
    assert [mount and mount.kind for mount in found] == ["tmpfs", "ext4", "cgroup"]
    assert mount_of((), "/a") is None


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    for mount in parse_mountinfo(text):
        assert mount.major >= 0 or text


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_only_a_newline_ends_a_line(end: str) -> None:
    point = f"/mnt/a{end}b"
    (mount,) = parse_mountinfo(f"36 1 8:1 / {point} rw - ext4 /dev/sda1 rw\n")
    assert mount.point == point
