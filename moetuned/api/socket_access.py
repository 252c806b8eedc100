"""Who may use the daemon's socket, for somebody who may not: as root, or as a member of which group, and how to become one."""

from __future__ import annotations

import grp
import os
import pwd

_SUDO = "run this with sudo"


def who_may(path: str) -> str:
    """What to do, as the rest of a sentence."""
    group = _group_of(path)
    if group is None:
        return f"only root and members of the socket's group may; {_SUDO}."
    if group.gr_gid == 0:
        return f"only root may; {_SUDO}."
    user = _user()
    may = f"only root and members of the group {group.gr_name} may"
    if user is not None and user in group.gr_mem:
        return f"{may}. You became one after you logged in: log out and in again, or {_SUDO}."
    join = f"sudo usermod -aG {group.gr_name} {user or 'YOUR-NAME'}"
    return f"{may}. For now, {_SUDO}; for good, join the group and log in again: {join}"


def _group_of(path: str) -> grp.struct_group | None:
    """None: it cannot be told."""
    try:
        return grp.getgrgid(os.stat(path).st_gid)
    except (OSError, KeyError):
        return None


def _user() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None
