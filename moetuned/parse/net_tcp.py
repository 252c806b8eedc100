"""/proc/<pid>/net/tcp and tcp6: who listens on a port, and who is connected to it, in the process's network (proc_pid_net(5), proc_net_tcp.rst)."""

from __future__ import annotations

import re

import msgspec

_LISTEN = "0A"
ESTABLISHED, CLOSE_WAIT, FIN_WAIT1, FIN_WAIT2 = "01", "08", "04", "05"
"""include/net/tcp_states.h. In CLOSE_WAIT the other end has sent all that it will, in the last two this end has (the other knows it, or not yet)."""
_CONNECTED = (ESTABLISHED, CLOSE_WAIT, FIN_WAIT1, FIN_WAIT2)
_LOCAL = re.compile(r"(?:[0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})", re.ASCII)
_MAPPED = re.compile(r"0{16}(?:FFFF0000|0000FFFF)(?=[0-9A-F]{8}:)", re.ASCII)
"""::ffff:0:0/96 as a little-endian and as a big-endian kernel writes it: a server that listens on IPv6 sees IPv4 clients so."""
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
        if _is_inode(inode) and int(inode):
            found.add(int(inode))
    return frozenset(found)


class Connection(msgspec.Struct, frozen=True):
    """One end of a connection over which something may still come: address and port of both ends, as the kernel writes IPv4 where it is that.

    `inode`: of this end's socket; 0: no process has accepted it yet, or has it any more.
    """

    local: str
    remote: str
    inode: int
    state: str = ESTABLISHED


def connections_at(text: str, port: int) -> tuple[Connection, ...]:
    """The ends of connections whose own or other port is `port`. Lines that are cut or strange are left out."""
    found = []
    for line in text.split("\n"):
        fields = line.split()
        if len(fields) <= _INODE_FIELD or fields[_STATE_FIELD] not in _CONNECTED:
            continue
        local, remote, inode = fields[1], fields[2], fields[_INODE_FIELD]
        if not (_LOCAL.fullmatch(local) and _LOCAL.fullmatch(remote) and _is_inode(inode)):
            continue
        if port in (port_of(local), port_of(remote)):
            own, other = _MAPPED.sub("", local), _MAPPED.sub("", remote)
            found.append(Connection(own, other, int(inode), fields[_STATE_FIELD]))
    return tuple(found)


def port_of(end: str) -> int:
    """Of one end of a `Connection`."""
    return int(end.rpartition(":")[2], 16)


def _is_inode(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
