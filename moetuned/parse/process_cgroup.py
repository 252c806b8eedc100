"""/proc/<pid>/cgroup and where cgroup hierarchies are mounted: the memory cgroup's directory (cgroups(7))."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.parse.mountinfo import Mount

_SYSTEMD = "name=systemd"


class CgroupPlace(msgspec.Struct, frozen=True):
    """A process's place in the hierarchy that has the memory controller.

    `mount_point` is the hierarchy's root directory, `relative` the path below it without slashes at the ends ("" is the root).
    """

    version: int
    mount_point: str
    relative: str


def memory_cgroup_place(cgroup: str, mounts: Sequence[Mount]) -> CgroupPlace | str:
    """Where a process with this /proc/<pid>/cgroup text is, or one sentence why that is unknown.

    A mounted v1 memory controller wins (hybrid systems have an empty v2 hierarchy beside it). Of several mounts of one
    hierarchy the one that shows most of it counts. Paths and mount roots are both as the reader's cgroup namespace sees them:
    what is outside it begins with `/..` (cgroup_namespaces(7)).
    """
    paths = _paths(cgroup)
    version_1 = [mount for mount in mounts if mount.kind == "cgroup" and "memory" in mount.options]
    if version_1 and "memory" in paths:
        return _best_place(1, version_1, paths["memory"])
    version_2 = [mount for mount in mounts if mount.kind == "cgroup2"]
    if version_2 and "" in paths:
        return _best_place(2, version_2, paths[""])
    return "no mounted cgroup hierarchy has the memory controller of this process"


def freezer_places(cgroup: str, mounts: Sequence[Mount]) -> tuple[CgroupPlace, ...]:
    """Where a process with this /proc/<pid>/cgroup text may be frozen: in the v1 freezer and in the v2 hierarchy, as they are mounted."""
    paths = _paths(cgroup)
    version_1 = [mount for mount in mounts if mount.kind == "cgroup" and "freezer" in mount.options]
    version_2 = [mount for mount in mounts if mount.kind == "cgroup2"]
    found = []
    if version_1 and "freezer" in paths:
        found.append(_best_place(1, version_1, paths["freezer"]))
    if version_2 and "" in paths:
        found.append(_best_place(2, version_2, paths[""]))
    return tuple(place for place in found if isinstance(place, CgroupPlace))


def service_places(cgroup: str, mounts: Sequence[Mount]) -> tuple[CgroupPlace, ...]:
    """Where systemd keeps a process with this /proc/<pid>/cgroup text: in the v2 hierarchy, or in a v1 one of its own name."""
    paths = _paths(cgroup)
    version_2 = [mount for mount in mounts if mount.kind == "cgroup2"]
    version_1 = [mount for mount in mounts if mount.kind == "cgroup" and _SYSTEMD in mount.options]
    found = []
    if version_2 and "" in paths:
        found.append(_best_place(2, version_2, paths[""]))
    if version_1 and _SYSTEMD in paths:
        found.append(_best_place(1, version_1, paths[_SYSTEMD]))
    return tuple(place for place in found if isinstance(place, CgroupPlace))


def _paths(cgroup: str) -> dict[str, str]:
    """Path by v1 controller; the v2 path under ""."""
    paths: dict[str, str] = {}
    for line in cgroup.split("\n"):  # a name may hold any other character that splitlines() ends one at
        number, colon, rest = line.partition(":")
        controllers, second_colon, path = rest.partition(":")
        if colon and second_colon and number.isascii() and number.isdigit() and path.startswith("/"):
            for controller in controllers.split(","):
                if controller or number == "0":
                    paths.setdefault(controller, path.removesuffix(" (deleted)"))
    return paths


def _best_place(version: int, mounts: Sequence[Mount], path: str) -> CgroupPlace | str:
    """The first answer, asking the mounts whose root is highest first."""
    answers = [_place(version, mount, path) for mount in sorted(mounts, key=_height)]
    return next((answer for answer in answers if isinstance(answer, CgroupPlace)), answers[0])


def _height(mount: Mount) -> int:
    """Levels of a mount's root below the reader's own cgroup; negative above it."""
    return sum(-1 if part == ".." else 1 for part in mount.root.split("/") if part)


def _place(version: int, mount: Mount, path: str) -> CgroupPlace | str:
    up, parts = _climb(path)
    root_up, root = _climb(mount.root)
    if up is None or root_up is None:
        return f"its memory cgroup {path} cannot be understood"
    if up > root_up:
        return f"its memory cgroup {path} lies outside this cgroup namespace"
    if up < root_up:
        # The names of the cgroups in between are not to be seen from here.
        return f"its memory cgroup {path} lies below {mount.root} in a place that this cgroup namespace does not tell"
    if parts[: len(root)] != root:
        # In a container the mount shows only a part of the hierarchy, and the path may start above that part.
        return f"its memory cgroup {path} is not below the mounted part {mount.root}"
    return CgroupPlace(version, mount.point, "/".join(parts[len(root) :]))


def _climb(path: str) -> tuple[int | None, list[str]]:
    """How many levels a path goes up first, and its names after that; None when it goes up in its middle."""
    parts = [part for part in path.split("/") if part and part != "."]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return (None, []) if ".." in parts[up:] else (up, parts[up:])
