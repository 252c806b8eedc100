"""/proc/self/mounts: whether a path lies on a read-only mount (proc(5), fstab(5))."""

from __future__ import annotations

import re

_OCTAL = re.compile(r"\\([0-7]{3})")


def is_read_only(mounts: str, path: str) -> bool:
    """Whether the absolute `path` lies on a mount that is read-only; False when no mount of the table holds it.

    The last of the longest mount points above `path` counts, since a later mount covers an earlier one. The kernel writes
    `ro` for a read-only mount as well as for a read-only file system (show_vfsmnt in fs/proc_namespace.c); containers
    mount /proc/sys and /sys so.
    """
    longest, read_only = -1, False
    for line in mounts.split("\n"):
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1]).rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(point) >= longest:
            longest, read_only = len(point), "ro" in fields[3].split(",")
    return read_only
