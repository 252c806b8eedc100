"""A cgroup in the version 2 tree: what is above it, and who may write its files (Documentation/admin-guide/cgroup-v2.rst).

What systemd made is systemd's (https://systemd.io/CGROUP_DELEGATION/): its units are changed through it. What lies below a
service or a scope is delegated to whoever runs there.
"""

from __future__ import annotations

import msgspec

from moetuned.host.fs import HostFS
from moetuned.host.service_manager import is_unit
from moetuned.host.systemd_booted import BOOTED
from moetuned.parse.kernel_numbers import whole_number
from moetuned.parse.mountinfo import mount_of, parse_mountinfo

_EVERYTHING_BYTES = 1 << 60
"""As much as no machine has."""
_INIT = "/init.scope"
_LRU_SWITCH = "/sys/kernel/mm/lru_gen/enabled"
"""Bit 0 is the main switch (Documentation/admin-guide/mm/multigen_lru.rst)."""
NO_CGROUP = "the cgroup of {} is not known: it does not run, or no running daemon tells"


class UnifiedCgroup(msgspec.Struct, frozen=True):
    """One cgroup. `parts` are the names from the mount point down; () is the mount point itself.

    `problem`: why nothing of it can be set, one sentence.
    """

    root: str
    parts: tuple[str, ...]
    problem: str | None = None

    @property
    def directory(self) -> str:
        """Its absolute path."""
        return "/".join((self.root, *self.parts))

    @property
    def name(self) -> str:
        """For people: `system.slice/llama.service`."""
        return "/".join(self.parts) or self.root

    def above(self) -> tuple[UnifiedCgroup, ...]:
        """The cgroups above it, the nearest first, without the root."""
        return tuple(UnifiedCgroup(self.root, self.parts[:count]) for count in range(len(self.parts) - 1, 0, -1))


def unified_cgroup(fs: HostFS, directory: str) -> UnifiedCgroup:
    """The cgroup at `directory`. Never raises; what is no cgroup of version 2, or not there, has a `problem`."""
    path = directory.rstrip("/")
    try:
        mount = mount_of(parse_mountinfo(fs.read_text("/proc/self/mountinfo")), path)
    except OSError as error:
        return UnifiedCgroup(path, (), f"the list of mounts cannot be read: {error.strerror or error}")
    if mount is None or mount.kind not in ("cgroup", "cgroup2"):
        return UnifiedCgroup(path, (), f"{path} is no cgroup")
    if mount.kind == "cgroup":
        return UnifiedCgroup(path, (), f"{path} is a cgroup of version 1, which has no such setting")
    parts = tuple(part for part in path.removeprefix(mount.point).split("/") if part)
    if not parts or not {".", ".."}.isdisjoint(parts):
        return UnifiedCgroup(path, (), f"{path} is not below the root of the cgroups")
    found = UnifiedCgroup(mount.point, parts)
    if not fs.exists(f"{path}/cgroup.procs"):
        return msgspec.structs.replace(found, problem=f"there is no cgroup {path}")
    return found


def is_of_daemon(directory: str, own: str | None) -> bool:
    """Whether a process in `directory` is where the daemon is (`own`; None: the root, or unknown), or above it, or in systemd's own.

    A child of the daemon starts there and is moved a moment later, as one of systemd may be; what is set there is not set for it.
    """
    return directory == own or (own or "").startswith(f"{directory}/") or directory.endswith(_INIT)


def low_is_weak(fs: HostFS) -> bool:
    """Whether memory.low gives way as soon as the whole machine is short: pages age in generations (multi-gen LRU).

    Reclaim under a limit keeps it, and memory.min is always kept. Source: mm/vmscan.c (shrink_one puts a cgroup below its memory.low
    off once, then takes from it; shrink_node_memcgs, for all else, skips it while others have anything), and tests/system measures it.
    """
    try:
        return int(fs.read_text(_LRU_SWITCH), 16) & 1 == 1
    except (OSError, ValueError):
        return False


def protected_bytes(fs: HostFS, directory: str) -> int:
    """How much of the cgroup's memory the kernel keeps for it: memory.min, or memory.low where that holds; no more than every cgroup above has too.

    0: nothing, or unknown. What a cgroup gets of its parent's alone (the mount option memory_recursiveprot) is not counted.
    """
    cgroup = unified_cgroup(fs, directory)
    if cgroup.problem is not None:
        return 0
    files = ("memory.min",) if low_is_weak(fs) else ("memory.min", "memory.low")
    return max(min(_bytes_in(fs, f"{each.directory}/{name}") for each in (cgroup, *cgroup.above())) for name in files)


def _bytes_in(fs: HostFS, path: str) -> int:
    try:
        text = fs.read_text(path).strip()
    except OSError:
        return 0
    return _EVERYTHING_BYTES if text == "max" else whole_number(text) or 0


def unit_of(fs: HostFS, cgroup: UnifiedCgroup) -> tuple[str | None, str | None]:
    """The unit of the system's systemd that the cgroup is, and why its files may not be written; both None: they may be.

    Below `user@1000.service` the units are those of a user's own systemd, which only the user can ask.
    """
    if not cgroup.parts or not fs.exists(BOOTED) or not is_unit(cgroup.parts[-1]):
        return None, None
    above = cgroup.parts[:-1]
    if any(part.startswith("user@") for part in above):
        return None, (
            f"{cgroup.parts[-1]} is a unit of a user's systemd, which would undo it: set it there "
            f"(systemctl --user set-property {cgroup.parts[-1]} …)"
        )
    delegated = any(part.endswith((".service", ".scope")) for part in above)
    return (None if delegated else cgroup.parts[-1]), None
