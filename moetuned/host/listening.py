"""Whether a process listens on a port itself: its own open socket, and not another one's at the same address.

A server that hangs in its end no longer listens, and the next one on its port answers for it.
"""

from __future__ import annotations

import os
import re

from moetuned.parse.net_tcp import listening_inodes

TABLE_LIMIT_BYTES = 8 << 20
"""About 50,000 sockets."""
_SOCKET = re.compile(r"socket:\[(\d{1,20})\]")


def listens(pid: int, port: int, proc: str = "/proc") -> bool | None:
    """Whether process `pid` holds a socket that listens on TCP `port` in its own network; None when it cannot be looked at.

    Looks at every open file of the process: for now and then, not for a tick.
    """
    inodes: set[int] = set()
    whole = True
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/{pid}/net/{name}", encoding="ascii", errors="replace", newline="\n") as file:
                text = file.read(TABLE_LIMIT_BYTES)
        except FileNotFoundError:
            continue  # without IPv6; a process that has ended has no open files either
        except OSError:
            return None
        whole = whole and len(text) < TABLE_LIMIT_BYTES
        inodes |= listening_inodes(text, port)
    try:
        names = os.listdir(f"{proc}/{pid}/fd")
    except OSError:
        return None
    for name in names:
        try:
            match = _SOCKET.fullmatch(os.readlink(f"{proc}/{pid}/fd/{name}"))
        except OSError:
            continue  # it was closed meanwhile
        if match is not None and int(match[1]) in inodes:
            return True
    return False if whole else None
