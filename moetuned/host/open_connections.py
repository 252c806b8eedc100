"""How many connections of others to a backend are open, in its own network: a request may be on each of them.

One that its client keeps open for the next request looks the same. A client may have sent all that it will and wait for the answer.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from moetuned.host.listening import socket_inodes, tables
from moetuned.parse.net_tcp import CLOSE_WAIT, ESTABLISHED, Connection, connections_at, listening_inodes, port_of

TABLE_LIMIT_BYTES = 1 << 20
"""About 6,000 sockets: it is read on the loop."""


def open_connections(pid: int, port: int, proc: str = "/proc") -> int | None:
    """How many connections to TCP `port` are open in the network of process `pid` that are not this process's own.

    Into another network (a container) this process comes through NAT or a proxy, so each of its own connections to that port is one of those
    counted there, whatever address that has. Also those that wait to be accepted; not those that the other side has closed, where it is seen. None when that cannot be told, also where there are none and nobody
    listens there: a container may have another port inside than outside. For a restart, not for a tick: with 500 sockets it takes 12 ms of CPU.
    """
    try:
        table = tables(f"{proc}/{pid}/net", TABLE_LIMIT_BYTES)
        is_elsewhere = _is_elsewhere(pid, proc)
        own_table = tables(f"{proc}/self/net", TABLE_LIMIT_BYTES) if is_elsewhere else table
        if table is None or own_table is None or not table[1]:
            return None
        sockets = frozenset(socket_inodes(f"{proc}/self/fd"))
    except OSError:
        return None
    own = {one.local for one in connections_at(own_table[0], port) if one.inode in sockets}
    found = connections_at(table[0], port)
    held = {one.local for one in found if one.inode}
    there = [one.remote for one in found if port_of(one.local) == port and _may_wait(one, held)]
    count = max(0, len(there) - len(own)) if is_elsewhere else sum(remote not in own for remote in there)
    return count if count or listening_inodes(table[0], port) else None


def _may_wait(server_end: Connection, held: Collection[str]) -> bool:
    """Whether a client may wait for an answer at the other end. `held`: ends in the same network that a process still has open."""
    if server_end.state != CLOSE_WAIT:
        return server_end.state == ESTABLISHED
    same_host = server_end.local.rpartition(":")[0] == server_end.remote.rpartition(":")[0]
    return not same_host or server_end.remote in held


def _is_elsewhere(pid: int, proc: str) -> bool:
    return os.readlink(f"{proc}/{pid}/ns/net") != os.readlink(f"{proc}/self/ns/net")
