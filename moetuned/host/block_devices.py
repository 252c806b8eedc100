"""The disks under a file, and the read-ahead that a fault on it gets (Documentation/ABI/testing/sysfs-class-bdi).

Counters are read from the disks at the bottom (partitions, device mapper, md and loop devices are followed down), read-ahead from the bdi
of the file system, which is the topmost whole device's or, on btrfs, one of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

import msgspec

from moetuned.host.fs import HostFS, RealFS
from moetuned.parse.mountinfo import Mount, mount_of, parse_mountinfo

_REAL = RealFS()
_DEEPEST = 8
_NO_DISK = {
    "overlay": "it is on an overlay file system, which does not say which disk a file is on",
    "zfs": "it is on ZFS, which does not show its disks to the kernel",
    "tmpfs": "it is in memory (tmpfs)",
    "ramfs": "it is in memory (ramfs)",
}
_VIRTUAL_VENDORS = ("QEMU", "VMware", "VMware,", "Msft", "VBOX", "Google", "Amazon")
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs")
_OVER_A_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "afs", "fuse.sshfs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"}
)
_OTHER_ROOT = re.compile(r"/proc/(?P<pid>\d+)/root/")


class FileDevices(msgspec.Struct, frozen=True):
    """What is under a file. `names` are names in /sys/block; () when unknown, and `unknown` says why in one sentence.

    `read_ahead_kb` is the number in `read_ahead_path`; both None when it is not known which one counts. They can be known
    where the disks are not (btrfs on several devices). `virtual`: a hypervisor or a network made all of the disks; one that says
    it turns is not believed, and `rotational` is None. `spread`: the file system does not say which of `names` hold the file, in one
    sentence; they are all counted then, and none is tuned for it.
    """

    names: tuple[str, ...] = ()
    rotational: bool | None = None
    virtual: bool = False
    read_ahead_kb: int | None = None
    read_ahead_path: str | None = None
    filesystem: str | None = None
    unknown: str | None = None
    spread: str | None = None

    @property
    def nvme(self) -> bool:
        """Whether all disks are NVMe ones."""
        return bool(self.names) and all(name.startswith("nvme") for name in self.names)

    @property
    def over_network(self) -> bool:
        """Whether its file system is one that reads over a network; False is also what is not known."""
        return self.filesystem in _OVER_A_NETWORK

    @property
    def read_ahead_device(self) -> str | None:
        """Whose `read_ahead_path` is: `vda` of /sys/block/vda/bdi/read_ahead_kb, `btrfs-1` of /sys/class/bdi/btrfs-1/read_ahead_kb."""
        if self.read_ahead_path is None:
            return None
        return self.read_ahead_path.removeprefix("/sys/block/").removeprefix("/sys/class/bdi/").partition("/")[0]


def device_number(path: str) -> tuple[int, int]:
    """Major and minor number of the file system a file is on. Raises OSError."""
    number = os.stat(path).st_dev
    return os.major(number), os.minor(number)


def disks_under(
    fs: HostFS, paths: Iterable[str], device_of: Callable[[str], tuple[int, int]] = device_number
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Names of the disks under the files, each once, and the files under which none is known, with the reason."""
    disks: dict[str, None] = {}
    unknown: dict[str, str] = {}
    for path in paths:
        devices = under_file(path, fs, device_of)
        if devices.names and devices.spread is None:
            disks |= dict.fromkeys(devices.names)
        else:
            unknown[path] = devices.spread or devices.unknown or "the disk under it is not known"
    return tuple(disks), unknown


def under_file(
    path: str, fs: HostFS = _REAL, device_of: Callable[[str], tuple[int, int]] = device_number
) -> FileDevices:
    """The devices under the file or directory `path`. Never raises; what cannot be found out is unknown with a reason."""
    try:
        other = _OTHER_ROOT.match(path)
        owner = "self" if other is None else other["pid"]
        real = _real_path(path) if device_of is device_number else path
        number = device_of(path if other is not None else real)
        mount = mount_of(parse_mountinfo(fs.read_text(f"/proc/{owner}/mountinfo")), real)
        kind = None if mount is None else mount.kind
        names: tuple[str, ...] = ()
        unknown = spread = None
        try:
            tops = _tops(fs, number, mount)
            names = tuple(dict.fromkeys(name for top in tops for name in _leaves(fs, top, device_of, _DEEPEST)))
            read_ahead = _read_ahead_path(fs, tops[0])
            if len(tops) > 1:
                there = ", ".join(top.rpartition("/")[2] for top in tops)
                spread = f"it is on a {kind} of {len(tops)} devices ({there}), which does not say which holds a file"
        except _NoDiskError as error:
            read_ahead, unknown = None, str(error)
        if kind == "btrfs" and mount is not None:
            read_ahead = _btrfs_read_ahead_path(fs, mount.source)
        return FileDevices(
            names=names,
            rotational=_rotational(fs, names),
            virtual=bool(names) and all(is_virtual(fs, name) for name in names),
            read_ahead_kb=None if read_ahead is None else _number(fs, read_ahead),
            read_ahead_path=read_ahead,
            filesystem=kind,
            unknown=unknown,
            spread=spread,
        )
    except OSError as error:
        return FileDevices(unknown=f"cannot find the disk under {path}: {error.strerror or error}")


def _real_path(path: str) -> str:
    """With links resolved; of one below /proc/<pid>/root as it is in that process's own mounts. Raises OSError."""
    if _OTHER_ROOT.match(path) is None:
        return os.path.realpath(path, strict=True)
    # Only the kernel can follow that link: it reads as "/".
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


class _NoDiskError(Exception):
    """No disk can be named; the text says why."""


def _tops(fs: HostFS, number: tuple[int, int], mount: Mount | None) -> list[str]:
    """Directories (under /sys/devices) of the whole devices a file system lies on, at least one. Raises _NoDiskError, OSError."""
    link = f"/sys/dev/block/{number[0]}:{number[1]}"
    if number[0] != 0 and fs.exists(link):
        return [_whole(fs, fs.resolve_link(link))]
    if mount is None:
        raise _NoDiskError("its file system is not in the list of mounts")
    if mount.kind in _NO_DISK:
        raise _NoDiskError(_NO_DISK[mount.kind])
    if mount.kind in _NETWORK or mount.kind.startswith("fuse"):
        raise _NoDiskError(f"it is on a network or user-space file system ({mount.kind})")
    if mount.kind == "btrfs":
        return _btrfs(fs, mount.source)
    raise _NoDiskError(f"its file system ({mount.kind}) names no block device")


def _btrfs(fs: HostFS, source: str) -> list[str]:
    """Btrfs hides its devices behind a number of its own, but lists them in /sys/fs/btrfs. A file may lie on any of them."""
    found = _btrfs_directory(fs, source)
    if found is None:
        raise _NoDiskError(f"no btrfs in /sys/fs/btrfs has the device {source}")
    return [_whole(fs, fs.resolve_link(f"/sys/class/block/{device}")) for device in found[1]]


def _btrfs_directory(fs: HostFS, source: str) -> tuple[str, list[str]] | None:
    """Directory of the btrfs that has the device `source`, and the names of all its devices."""
    name = source.rpartition("/")[2]
    if source.startswith("/dev/mapper/"):
        name = fs.resolve_link(source).rpartition("/")[2]
    for label in fs.list_directory("/sys/fs/btrfs"):
        directory = f"/sys/fs/btrfs/{label}"
        devices = fs.list_directory(f"{directory}/devices") if fs.exists(f"{directory}/devices") else []
        if name in devices:
            return directory, devices
    return None


def _btrfs_read_ahead_path(fs: HostFS, source: str) -> str | None:
    """Its own bdi, that of all its devices: linked from its directory in newer kernels, else known when there is only one btrfs."""
    found = _btrfs_directory(fs, source)
    if found is None:
        return None
    if fs.exists(f"{found[0]}/bdi"):
        name = fs.resolve_link(f"{found[0]}/bdi").rpartition("/")[2]
    else:
        all_of_them = fs.list_directory("/sys/class/bdi") if fs.exists("/sys/class/bdi") else []
        own = [name for name in all_of_them if name.startswith("btrfs-")]
        if len(own) != 1:
            return None
        name = own[0]
    path = f"/sys/class/bdi/{name}/read_ahead_kb"
    return path if fs.exists(path) else None


def _whole(fs: HostFS, directory: str) -> str:
    """A partition's directory lies in its disk's."""
    return directory.rpartition("/")[0] if fs.exists(f"{directory}/partition") else directory


def _leaves(fs: HostFS, disk: str, device_of: Callable[[str], tuple[int, int]], depth: int) -> list[str]:
    """Names of the disks at the bottom of a stack of devices."""
    name = disk.rpartition("/")[2]
    if depth > 0:
        backing = f"{disk}/loop/backing_file"
        if fs.exists(backing):
            below = _under_backing_file(fs, fs.read_text(backing).rstrip("\n"), device_of)
            return [name] if below is None else _leaves(fs, below, device_of, depth - 1)
        slaves = fs.list_directory(f"{disk}/slaves") if fs.exists(f"{disk}/slaves") else []
        if slaves:
            found: list[str] = []
            for slave in slaves:
                below = _whole(fs, fs.resolve_link(f"/sys/class/block/{slave}"))
                found += _leaves(fs, below, device_of, depth - 1)
            return found
    return [name]


def _under_backing_file(fs: HostFS, path: str, device_of: Callable[[str], tuple[int, int]]) -> str | None:
    """The device under a loop device's file; None when it cannot be found (deleted, in another mount namespace)."""
    try:
        number = device_of(path)
    except OSError:
        return None
    link = f"/sys/dev/block/{number[0]}:{number[1]}"
    return _whole(fs, fs.resolve_link(link)) if number[0] != 0 and fs.exists(link) else None


def _read_ahead_path(fs: HostFS, top: str) -> str | None:
    path = f"{top}/bdi/read_ahead_kb"
    return f"/sys/block/{top.rpartition('/')[2]}/bdi/read_ahead_kb" if fs.exists(path) else None


def _rotational(fs: HostFS, names: tuple[str, ...]) -> bool | None:
    """True when one of the disks says so; None where one does not say, or is virtual and says so: most do, whatever is below."""
    values = [(_number(fs, f"/sys/block/{name}/queue/rotational"), is_virtual(fs, name)) for name in names]
    if any(value == 1 and not virtual for value, virtual in values):
        return True
    return False if values and all(value == 0 for value, _ in values) else None


def is_virtual(fs: HostFS, name: str) -> bool:
    """Whether a hypervisor or a network made the disk."""
    if name.startswith(("vd", "xvd", "nbd", "rbd")):
        return True
    try:
        return fs.read_text(f"/sys/block/{name}/device/vendor", 64).strip() in _VIRTUAL_VENDORS
    except OSError:
        return False


def _number(fs: HostFS, path: str) -> int | None:
    try:
        return int(fs.read_text(path, 64))
    except (OSError, ValueError):
        return None
