"""Whether the cgroup of a process, or one above it, limits what it may read of some devices."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.parse.io_limits import ReadLimit, parse_io_max, parse_throttle
from moetuned.parse.mountinfo import parse_mountinfo

_REAL = RealFS()


class FoundLimit(msgspec.Struct, frozen=True):
    """A limit and the file that holds it."""

    path: str
    limit: ReadLimit


def device_numbers(fs: HostFS, names: Collection[str]) -> frozenset[str]:
    """The `major:minor` of devices of /sys/block; those that are gone are left out."""
    texts = (read_or_none(fs, f"/sys/block/{name}/dev", 64) for name in names)
    return frozenset(text.strip() for text in texts if text)


def read_limit(pid: int, numbers: Collection[str], fs: HostFS = _REAL) -> FoundLimit | None:
    """The first limit on one of the devices, from the cgroup of `pid` upwards; None when there is none or it cannot be seen."""
    own, mounts = read_or_none(fs, f"/proc/{pid}/cgroup", 1 << 16), read_or_none(fs, "/proc/self/mountinfo")
    if own is None or mounts is None:
        return None
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in own.split("\n") if line.count(":") >= 2}
    for mount in parse_mountinfo(mounts):
        if mount.kind == "cgroup2" and "" in paths:
            found = _upwards(fs, mount.point, paths[""], numbers, version=2)
        elif mount.kind == "cgroup" and "blkio" in mount.options:
            path = next((path for names, path in paths.items() if "blkio" in names.split(",")), None)
            found = None if path is None else _upwards(fs, mount.point, path, numbers, version=1)
        else:
            continue
        if found is not None:
            return found
    return None


def _upwards(fs: HostFS, root: str, path: str, numbers: Collection[str], *, version: int) -> FoundLimit | None:
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        return None
    for count in range(len(parts), -1, -1):
        directory = "/".join((root, *parts[:count]))
        if version == 2:
            file = f"{directory}/io.max"
            limits = parse_io_max(read_or_none(fs, file, 1 << 16) or "")
        else:
            file = f"{directory}/blkio.throttle.read_bps_device"
            ios = read_or_none(fs, f"{directory}/blkio.throttle.read_iops_device", 1 << 16) or ""
            limits = parse_throttle(read_or_none(fs, file, 1 << 16) or "", ios)
        for number in numbers:
            if number in limits:
                return FoundLimit(file, limits[number])
    return None
