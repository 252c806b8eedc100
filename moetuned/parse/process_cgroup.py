"""/proc/<pid>/cgroup and where cgroup hierarchies are mounted: the memory cgroup's directory (cgroups(7))."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.parse.mountinfo import Mount


class CgroupPlace(msgspec.Struct, frozen=True):
    """A process's place in the hierarchy that has the memory controller.

    `mount_point` is the hierarchy's root directory, `relative` the path below it without slashes at the ends ("" is the root).
    """

    version: int
    mount_point: str
    relative: str


def memory_cgroup_place(cgroup: str, mounts: Sequence[Mount]) -> CgroupPlace | str:
    """Where a process with this /proc/<pid>/cgroup text is, or one sentence why that is unknown.

    A mounted v1 memory controller wins (hybrid systems have an empty v2 hierarchy beside it).
    """
    paths = _paths(cgroup)
    version_1 = next((m for m in mounts if m.kind == "cgroup" and "memory" in m.options), None)
    if version_1 is not None and "memory" in paths:
        return _place(1, version_1, paths["memory"])
    version_2 = next((m for m in mounts if m.kind == "cgroup2"), None)
    if version_2 is not None and "" in paths:
        return _place(2, version_2, paths[""])
    return "no mounted cgroup hierarchy has the memory controller of this process"


def _paths(cgroup: str) -> dict[str, str]:
    """Path by v1 controller; the v2 path under ""."""
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        number, colon, rest = line.partition(":")
        controllers, second_colon, path = rest.partition(":")
        if colon and second_colon and number.isascii() and number.isdigit() and path.startswith("/"):
            for controller in controllers.split(","):
                if controller or number == "0":
                    paths.setdefault(controller, path.removesuffix(" (deleted)"))
    return paths


def _place(version: int, mount: Mount, path: str) -> CgroupPlace | str:
    if ".." in path.split("/"):
        return f"its memory cgroup {path} lies outside this cgroup namespace"
    root = mount.root.strip("/")
    relative = path.strip("/")
    if ".." not in root.split("/") and root:
        # In a container the mount shows only a part of the hierarchy, and the path may start above that part.
        if relative != root and not relative.startswith(root + "/"):
            return f"its memory cgroup {path} is not below the mounted part {mount.root}"
        relative = relative[len(root) :].strip("/")
    return CgroupPlace(version, mount.point, relative)
