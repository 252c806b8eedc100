"""Whether a process listens on a port itself, whether a port is taken, and by whom.

A server that hangs in its end no longer listens, and the next one on its port answers for it.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterator

from moetuned.host.process_looks import Who, proc_directory
from moetuned.parse.net_tcp import listening_inodes

TABLE_LIMIT_BYTES = 8 << 20
"""About 50,000 sockets."""
_SOCKET = re.compile(r"socket:\[(\d{1,20})\]")


def listens(pid: int, port: int, proc: str = "/proc") -> bool | None:
    """Whether process `pid` holds a socket that listens on TCP `port` in its own network; None when it cannot be looked at.

    Looks at every open file of the process: for now and then, not for a tick.
    """
    table = _listening(f"{proc}/{pid}/net", port)
    if table is None:
        return None
    inodes, whole = table
    holds = _holds(f"{proc}/{pid}/fd", inodes)
    return None if holds is False and not whole else holds


def is_taken(host: str, port: int) -> bool:
    """Whether a server cannot listen there now because another process does; False also where that cannot be told.

    A bind alone would also fail for what an ended server's connections leave for a minute (TIME_WAIT).
    """
    table = _listening("/proc/self/net", port)
    if table is None or (not table[0] and table[1]):
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def who_listens(port: int, root: str = "/") -> Who | None:
    """The process that listens on TCP `port` in this network, the first by pid; None when there is none or it cannot be seen.

    Looks at all open files of all processes: seldom, and off the loop.
    """
    proc = f"{root.rstrip('/')}/proc"
    table = _listening(f"{proc}/self/net", port)
    if table is None or not table[0]:
        return None
    try:
        with proc_directory(root) as looks:
            for pid in sorted(looks.pids()):
                if _holds(f"{proc}/{pid}/fd", table[0]):
                    return looks.who(pid)
    except OSError:
        return None
    return None


def _listening(directory: str, port: int) -> tuple[frozenset[int], bool] | None:
    """Inodes of the sockets that listen on the port, and whether all of the tables was read."""
    found = tables(directory, TABLE_LIMIT_BYTES)
    return None if found is None else (listening_inodes(found[0], port), found[1])


def tables(directory: str, limit_bytes: int) -> tuple[str, bool] | None:
    """`tcp` and `tcp6` of a /proc/<pid>/net as one text, and whether all of them was read; None when they cannot be read."""
    texts = []
    whole = True
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{directory}/{name}", encoding="ascii", errors="replace", newline="\n") as file:
                text = file.read(limit_bytes)
        except FileNotFoundError:
            continue  # without IPv6; a process that has ended has no open files either
        except OSError:
            return None
        whole = whole and len(text) < limit_bytes
        texts.append(text)
    return "\n".join(texts), whole


def _holds(directory: str, inodes: frozenset[int]) -> bool | None:
    """Whether one of the open files is one of the sockets; None when they may not be looked at."""
    try:
        return any(inode in inodes for inode in socket_inodes(directory))
    except OSError:
        return None


def socket_inodes(directory: str) -> Iterator[int]:
    """The sockets among the open files of a /proc/<pid>/fd. Raises OSError when they may not be looked at."""
    for name in os.listdir(directory):
        try:
            match = _SOCKET.fullmatch(os.readlink(f"{directory}/{name}"))
        except OSError:
            continue  # it was closed meanwhile
        if match is not None:
            yield int(match[1])
