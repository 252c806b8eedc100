"""The disks under a file, and the read-ahead that a fault on it gets (Documentation/ABI/testing/sysfs-class-bdi).

Counters are read from the disks at the bottom (partitions, device mapper, md and loop devices are followed down), read-ahead from the bdi
of the file system, which is the topmost whole device's or, on btrfs, one of its own.
"""

from __future__ import annotations

import os
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


class FileDevices(msgspec.Struct, frozen=True):
    """What is under a file. `names` are names in /sys/block; () when unknown, and `unknown` says why in one sentence.

    `read_ahead_kb` is the number in `read_ahead_path`; both None when it is not known which one counts. They can be known
    where the disks are not (btrfs on several devices). `virtual`: a hypervisor or a network made all of the disks; one that says
    it turns is not believed, and `rotational` is None.
    """

    names: tuple[str, ...] = ()
    rotational: bool | None = None
    virtual: bool = False
    read_ahead_kb: int | None = None
    read_ahead_path: str | None = None
    filesystem: str | None = None
    unknown: str | None = None

    @property
    def nvme(self) -> bool:
        """Whether all disks are NVMe ones."""
        return bool(self.names) and all(name.startswith("nvme") for name in self.names)

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
        disks |= dict.fromkeys(devices.names)
        if not devices.names:
            unknown[path] = devices.unknown or "the disk under it is not known"
    return tuple(disks), unknown


def under_file(
    path: str, fs: HostFS = _REAL, device_of: Callable[[str], tuple[int, int]] = device_number
) -> FileDevices:
    """The devices under the file or directory `path`. Never raises; what cannot be found out is unknown with a reason."""
    try:
        real = os.path.realpath(path, strict=True) if device_of is device_number else path
        number = device_of(real)
        mount = mount_of(parse_mountinfo(fs.read_text("/proc/self/mountinfo")), real)
        kind = None if mount is None else mount.kind
        names: tuple[str, ...] = ()
        unknown = None
        try:
            top = _top(fs, number, mount)
            names = tuple(dict.fromkeys(_leaves(fs, top, device_of, _DEEPEST)))
            read_ahead = _read_ahead_path(fs, top)
        except _NoDiskError as error:
            read_ahead, unknown = None, str(error)
        if kind == "btrfs" and mount is not None:
            read_ahead = _btrfs_read_ahead_path(fs, mount.source)
        return FileDevices(
            names=names,
            rotational=_rotational(fs, names),
            virtual=bool(names) and all(_is_virtual(fs, name) for name in names),
            read_ahead_kb=None if read_ahead is None else _number(fs, read_ahead),
            read_ahead_path=read_ahead,
            filesystem=kind,
            unknown=unknown,
        )
    except OSError as error:
        return FileDevices(unknown=f"cannot find the disk under {path}: {error.strerror or error}")


class _NoDiskError(Exception):
    """No disk can be named; the text says why."""


def _top(fs: HostFS, number: tuple[int, int], mount: Mount | None) -> str:
    """Directory (under /sys/devices) of the whole device a file system lies on. Raises _NoDiskError, OSError."""
    link = f"/sys/dev/block/{number[0]}:{number[1]}"
    if number[0] != 0 and fs.exists(link):
        return _whole(fs, fs.resolve_link(link))
    if mount is None:
        raise _NoDiskError("its file system is not in the list of mounts")
    if mount.kind in _NO_DISK:
        raise _NoDiskError(_NO_DISK[mount.kind])
    if mount.kind in _NETWORK or mount.kind.startswith("fuse"):
        raise _NoDiskError(f"it is on a network or user-space file system ({mount.kind})")
    if mount.kind == "btrfs":
        return _btrfs(fs, mount.source)
    raise _NoDiskError(f"its file system ({mount.kind}) names no block device")


def _btrfs(fs: HostFS, source: str) -> str:
    """Btrfs hides its device behind a number of its own, but lists its devices in /sys/fs/btrfs."""
    found = _btrfs_directory(fs, source)
    if found is None:
        raise _NoDiskError(f"no btrfs in /sys/fs/btrfs has the device {source}")
    devices = found[1]
    if len(devices) > 1:
        raise _NoDiskError(
            f"it is on a btrfs of {len(devices)} devices ({', '.join(devices)}), which does not say which holds a file"
        )
    return _whole(fs, fs.resolve_link(f"/sys/class/block/{devices[0]}"))


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
    values = [(_number(fs, f"/sys/block/{name}/queue/rotational"), _is_virtual(fs, name)) for name in names]
    if any(value == 1 and not virtual for value, virtual in values):
        return True
    return False if values and all(value == 0 for value, _ in values) else None


def _is_virtual(fs: HostFS, name: str) -> bool:
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
