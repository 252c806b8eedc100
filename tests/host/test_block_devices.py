"""Disks under files, over trees like those of real machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.block_devices import FileDevices, disks_under, under_file
from moetuned.host.fs import RealFS

NVME = "sys/devices/pci0000:00/0000:01/nvme/nvme0/nvme0n1"
SDA = "sys/devices/pci0000:00/ata1/block/sda"
DM = "sys/devices/virtual/block/dm-0"
MD = "sys/devices/virtual/block/md0"
LOOP = "sys/devices/virtual/block/loop0"


class Tree:
    """A machine's /sys and /proc/self/mountinfo."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounts = ""
        self.numbers: dict[str, tuple[int, int]] = {}

    def disk(self, directory: str, number: str, rotational: str = "0\n", read_ahead: str = "128\n") -> None:
        name = directory.rpartition("/")[2]
        self.write(f"{directory}/queue/rotational", rotational)
        self.write(f"{directory}/bdi/read_ahead_kb", read_ahead)
        self.link(f"sys/block/{name}", directory)
        self.device(directory, number)

    def partition(self, directory: str, number: str) -> None:
        self.write(f"{directory}/partition", "1\n")
        self.device(directory, number)

    def device(self, directory: str, number: str) -> None:
        self.link(f"sys/dev/block/{number}", directory)
        self.link(f"sys/class/block/{directory.rpartition('/')[2]}", directory)

    def slave(self, above: str, below: str) -> None:
        self.link(f"{above}/slaves/{below.rpartition('/')[2]}", below)

    def mount(self, number: str, point: str, kind: str, source: str) -> None:
        self.mounts += f"1 1 {number} / {point} rw - {kind} {source} rw\n"

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target, place.parent))

    def under(self, path: str, number: tuple[int, int]) -> FileDevices:
        self.write("proc/self/mountinfo", self.mounts)
        numbers = {path: number, **self.numbers}

        def device_of(asked: str) -> tuple[int, int]:
            if asked not in numbers:
                raise FileNotFoundError(2, "No such file or directory", asked)
            return numbers[asked]

        return under_file(path, RealFS(str(self.root)), device_of)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.disk(NVME, "259:0", read_ahead="256\n")
    made.partition(f"{NVME}/nvme0n1p2", "259:2")
    made.disk(SDA, "8:0", rotational="1\n")
    made.partition(f"{SDA}/sda1", "8:1")
    made.mount("259:2", "/", "ext4", "/dev/nvme0n1p2")
    return made


def test_a_partition_is_its_disk(tree: Tree) -> None:
    assert tree.under("/models/a.gguf", (259, 2)) == FileDevices(
        names=("nvme0n1",),
        rotational=False,
        read_ahead_kb=256,
        read_ahead_path="/sys/block/nvme0n1/bdi/read_ahead_kb",
        filesystem="ext4",
    )


def test_lvm_on_raid_counts_on_the_disks_and_reads_ahead_on_top(tree: Tree) -> None:
    tree.disk(MD, "9:0")
    tree.disk(DM, "253:0", read_ahead="4096\n")
    tree.slave(DM, MD)
    tree.slave(MD, f"{SDA}/sda1")
    tree.slave(MD, f"{NVME}/nvme0n1p2")
    tree.mount("253:0", "/models", "xfs", "/dev/mapper/vg-models")
    assert tree.under("/models/a.gguf", (253, 0)) == FileDevices(
        names=("nvme0n1", "sda"),
        rotational=True,
        read_ahead_kb=4096,
        read_ahead_path="/sys/block/dm-0/bdi/read_ahead_kb",
        filesystem="xfs",
    )


def test_a_loop_device_is_followed_to_the_disk_of_its_file(tree: Tree) -> None:
    tree.disk(LOOP, "7:0", read_ahead="64\n")
    tree.write(f"{LOOP}/loop/backing_file", "/images/x.img\n")
    tree.numbers["/images/x.img"] = (8, 1)
    tree.mount("7:0", "/models", "ext4", "/dev/loop0")
    found = tree.under("/models/a.gguf", (7, 0))
    assert (found.names, found.rotational, found.read_ahead_kb) == (("sda",), True, 64)
    del tree.numbers["/images/x.img"]
    assert tree.under("/models/a.gguf", (7, 0)).names == ("loop0",)


def test_btrfs_on_one_device_has_a_bdi_of_its_own(tree: Tree) -> None:
    tree.mount("0:30", "/models", "btrfs", "/dev/sda1")
    tree.link("sys/fs/btrfs/1234-uuid/devices/sda1", f"{SDA}/sda1")
    tree.write("sys/class/bdi/btrfs-1/read_ahead_kb", "4096\n")
    assert tree.under("/models/a.gguf", (0, 41)) == FileDevices(
        names=("sda",),
        rotational=True,
        read_ahead_kb=4096,
        read_ahead_path="/sys/class/bdi/btrfs-1/read_ahead_kb",
        filesystem="btrfs",
    )
    tree.write("sys/class/bdi/btrfs-2/read_ahead_kb", "128\n")
    assert tree.under("/models/a.gguf", (0, 41)).read_ahead_kb is None
    tree.link("sys/fs/btrfs/1234-uuid/bdi", "sys/class/bdi/btrfs-2")
    assert tree.under("/models/a.gguf", (0, 41)).read_ahead_path == "/sys/class/bdi/btrfs-2/read_ahead_kb"


def test_btrfs_on_several_devices_is_on_all_of_them(tree: Tree) -> None:
    tree.mount("0:30", "/models", "btrfs", "/dev/sda1")
    tree.link("sys/fs/btrfs/1234-uuid/devices/sda1", f"{SDA}/sda1")
    tree.link("sys/fs/btrfs/1234-uuid/devices/nvme0n1p2", f"{NVME}/nvme0n1p2")
    found = tree.under("/models/a.gguf", (0, 41))
    assert (found.names, found.rotational, found.unknown) == (("nvme0n1", "sda"), True, None)
    assert "nvme0n1, sda" in (found.spread or "")
    assert found.read_ahead_path is None, "neither disk's own counts"
    tree.write("sys/class/bdi/btrfs-1/read_ahead_kb", "4096\n")
    assert tree.under("/models/a.gguf", (0, 41)).read_ahead_kb == 4096, "one bdi for all its devices"


def test_a_file_of_a_container_is_looked_for_in_its_own_mounts(tree: Tree) -> None:
    tree.write("proc/77/mountinfo", "1 1 8:1 /data /models rw - xfs /dev/sda1 rw\n")
    found = tree.under("/proc/77/root/models/a.gguf", (8, 1))
    assert (found.names, found.filesystem) == (("sda",), None), "the fake has no kernel that resolves the path"


def test_a_file_below_another_process_s_root_is_found() -> None:
    here = os.path.abspath(__file__)
    through = under_file(f"/proc/{os.getpid()}/root{here}")
    assert through == under_file(here)


@pytest.mark.parametrize(("kind", "expected"), [("nfs4", True), ("fuse.sshfs", True), ("9p", False), ("ext4", False)])
def test_what_reads_over_a_network(kind: str, expected: bool) -> None:
    assert FileDevices(filesystem=kind).over_network is expected


@pytest.mark.parametrize("kind", ["overlay", "zfs", "nfs4", "fuse.sshfs", "tmpfs", "9p", "strangefs", "btrfs"])
def test_no_disk_says_why(tree: Tree, kind: str) -> None:
    tree.mount("0:30", "/models", kind, "x")
    (tree.root / "sys/fs/btrfs/features").mkdir(parents=True)
    found = tree.under("/models/a.gguf", (0, 30))
    assert (found.names, found.filesystem) == ((), kind)
    assert found.unknown


def test_a_file_that_is_not_there_says_so(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", tree.mounts)
    assert "/models/none.gguf" in (under_file("/models/none.gguf", RealFS(str(tree.root))).unknown or "")


def test_a_real_file_has_a_disk_or_a_reason(tmp_path: Path) -> None:
    found = under_file(str(tmp_path))
    assert bool(found.names) != bool(found.unknown)
    assert all(os.path.exists(f"/sys/block/{name}/stat") for name in found.names)


@pytest.mark.parametrize(("names", "nvme"), [((), False), (("nvme0n1", "nvme1n1"), True), (("nvme0n1", "sda"), False)])
def test_whether_all_disks_are_nvme(names: tuple[str, ...], nvme: bool) -> None:
    assert FileDevices(names).nvme is nvme


@pytest.mark.parametrize(
    ("path", "device"),
    [
        ("/sys/block/vda/bdi/read_ahead_kb", "vda"),
        ("/sys/class/bdi/btrfs-1/read_ahead_kb", "btrfs-1"),
        (None, None),
    ],
)
def test_whose_read_ahead_it_is(path: str | None, device: str | None) -> None:
    assert FileDevices(read_ahead_path=path).read_ahead_device == device


def test_disks_under_several_files_once_each_and_files_without_any(tree: Tree) -> None:
    tree.mount("0:50", "/pool", "zfs", "pool")
    tree.write("proc/self/mountinfo", tree.mounts)
    numbers = {"/models/a": (259, 2), "/models/b": (259, 2), "/pool/c": (0, 50)}
    disks, unknown = disks_under(RealFS(str(tree.root)), numbers, numbers.__getitem__)
    assert disks == ("nvme0n1",)
    assert list(unknown) == ["/pool/c"]
    assert "ZFS" in unknown["/pool/c"]
