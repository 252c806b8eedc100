"""Where a process in a container has its files and its network, as seen from here (namespaces(7), proc(5)).

/proc/<pid>/root leads into its mount namespace. A link in there that begins with `/` means the container's root and not ours, so links
are followed here one by one. Its loopback is not ours: an address on it leads nowhere, or to somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from moetuned.host.processes import command_line, pids
from moetuned.parse.published_ports import local_addresses, published_port

_MOST_LINKS = 40
_TRIE_LIMIT_BYTES = 1 << 20


def same_namespace(pid: int, kind: str) -> bool:
    """Whether a process shares this one's namespace of a kind ("mnt", "net"). True also where that may not be known."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return True


def same_file(here: str, there: str) -> bool:
    """Whether both paths lead to the same file or directory; False where one leads nowhere."""
    try:
        return os.path.samefile(here, there)
    except OSError:
        return False


def path_here(pid: int, said: str) -> str | None:
    """Where this program can open a file that process `pid` calls `said`; None when there is no such file or it has ended."""
    try:
        if not said.startswith("/"):
            said = f"{os.readlink(f'/proc/{pid}/cwd')}/{said}"
        root = f"/proc/{pid}/root"
        if same_namespace(pid, "mnt") and os.path.samestat(os.stat(root), os.stat("/")):
            return said if os.path.exists(said) else None
        there = f"{root}{_follow(root, said)}"
        if not os.path.exists(there):
            return None
        # A service's own mounts, this daemon's or the process's, are mostly those of the machine: the plain name says more to people.
        return said if same_file(said, there) else there
    except (OSError, ValueError):
        return said if said.startswith("/") and os.path.exists(said) else None


def _follow(root: str, path: str) -> str:
    """`path` below `root` without links. Raises OSError: ELOOP, ENOENT and the like."""
    parts, done, links = [part for part in reversed(path.split("/")) if part], "", 0
    while parts:
        part = parts.pop()
        if part == ".":
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{root}{done}/{part}"
        try:
            target = os.readlink(here)
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
                raise
            done = f"{done}/{part}"  # EINVAL: no link
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(f"{path} has too many links")
        if target.startswith("/"):
            done = ""
        parts.extend(name for name in reversed(target.split("/")) if name)
    return done or "/"


def url_here(pid: int, url: str, port: int) -> tuple[str | None, str | None]:
    """Where `url` of a process (loopback, `port`) is reached from here, or one sentence why that is not known."""
    if same_namespace(pid, "net"):
        return url, None
    outside = published_port(_commands_of_root(), _addresses(pid), port)
    if outside is None:
        return None, (
            f"it listens on port {port} of another network namespace (a container), and which port of this machine leads there "
            "is not known: say `url:` in its entry of the config"
        )
    return url.replace(f":{port}", f":{outside}", 1), None


def _addresses(pid: int) -> frozenset[str]:
    try:
        with open(f"/proc/{pid}/net/fib_trie", encoding="ascii", errors="replace") as file:
            return local_addresses(file.read(_TRIE_LIMIT_BYTES))
    except OSError:
        return frozenset()


def _commands_of_root() -> Iterator[tuple[str, ...]]:
    """Command lines of root's processes: anybody can call a program of his docker-proxy."""
    for pid in pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != 0:
                continue
        except OSError:
            continue
        argv = command_line(pid)
        if argv:
            yield argv
