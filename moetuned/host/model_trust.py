"""Whose a model or a server is: what others than root and who asked could change is offered by `setup`, and taken only where it is named."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from collections.abc import Collection, Iterator, Mapping

_MOST_LINKS = 40
"""On one way, as the kernel follows them."""
_LEAST_ORDINARY = 1000
_DYNAMIC = range(61184, 65536)
"""Users of units with DynamicUser= (systemd.exec(5)), and nobody."""
_UIDS = re.compile(r"^Uid:\s+(\d+)\s+(\d+)", re.MULTILINE)


def trusted_users(environ: Mapping[str, str]) -> frozenset[int]:
    """Users who asked: root, this one, and for root who called sudo."""
    found = {0, os.geteuid()}
    if os.geteuid() == 0 and (name := environ.get("SUDO_USER")):
        try:
            found.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            pass
    return frozenset(found)


def changeable_by_others(path: str, trusted: Collection[int]) -> str | None:
    """Who else than `trusted` could put something else there, one clause; None: nobody.

    Judged are the file and every directory and link on the way to it, also of links: each must belong to one of them, and be writable for
    nobody else (in a sticky directory, such as /tmp, names belong to their owners). A group that only they are in is nobody else.
    """
    try:
        for name, status in _way(path):
            shown = name if name.isprintable() else repr(name)
            if status.st_uid not in trusted:
                return f"{shown} belongs to {_user(status.st_uid)}"
            if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
                continue
            if status.st_mode & stat.S_IWOTH or (
                status.st_mode & stat.S_IWGRP and not _is_theirs(status.st_gid, trusted)
            ):
                return f"{shown} may be written by others"
    except OSError as error:
        return f"{path} cannot be looked at: {error.strerror}"
    return None


def stranger_of(pid: int, trusted: Collection[int], proc: str = "/proc") -> str | None:
    """The ordinary user, none of `trusted`, whose process this is; None for those of the system's users and one that is gone."""
    try:
        with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
            match = _UIDS.search(file.read(4096))
    except OSError:
        return None
    if match is None:
        return None
    found = (int(uid) for uid in match.groups())
    return next(
        (_user(uid) for uid in found if uid not in trusted and uid >= _LEAST_ORDINARY and uid not in _DYNAMIC), None
    )


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """All that the kernel passes from / to the file, links and what they lead over included. Raises OSError."""
    yield "/", os.lstat("/")
    left = os.path.abspath(path).split("/")[::-1]
    current, links = "/", 0
    while left:
        word = left.pop()
        if word in ("", "."):
            continue
        if word == "..":
            current = os.path.dirname(current)
            continue
        name = os.path.join(current, word)
        status = os.lstat(name)
        yield name, status
        if not stat.S_ISLNK(status.st_mode):
            current = name
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(40, "Too many levels of symbolic links", path)
        target = os.readlink(name)
        current = "/" if target.startswith("/") else current
        left += target.split("/")[::-1]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _is_theirs(gid: int, trusted: Collection[int]) -> bool:
    """Whether only `trusted` are in this group: root's, or the one that a user has of its own (its name is the user's)."""
    if gid == 0:
        return True
    try:
        group = grp.getgrgid(gid)
        owner = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    return owner.pw_uid in trusted and owner.pw_gid == gid and set(group.gr_mem) <= {group.gr_name}
