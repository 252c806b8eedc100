"""/proc/<pid>/net/tcp and tcp6: which sockets listen on a port, in the process's network (proc_pid_net(5), proc_net_tcp.rst)."""

from __future__ import annotations

import re

_LISTEN = "0A"
"""TCP_LISTEN (include/net/tcp_states.h)."""
_LOCAL = re.compile(r"(?:[0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})", re.ASCII)
_STATE_FIELD, _INODE_FIELD = 3, 9
_MOST_DIGITS = 20


def listening_inodes(text: str, port: int) -> frozenset[int]:
    """Inodes of the sockets that listen on `port`, whatever the address. Lines that are cut or strange are left out."""
    found = set()
    for line in text.split("\n"):
        fields = line.split()
        if len(fields) <= _INODE_FIELD or fields[_STATE_FIELD] != _LISTEN:
            continue
        local, inode = _LOCAL.fullmatch(fields[1]), fields[_INODE_FIELD]
        if local is None or int(local[1], 16) != port:
            continue
        if inode.isascii() and inode.isdecimal() and len(inode) <= _MOST_DIGITS and int(inode):
            found.add(int(inode))
    return frozenset(found)
