"""Which port of this machine leads into a container: from `docker-proxy` command lines and the container's own addresses.

docker-proxy (moby, cmd/docker-proxy) is started for each published port as `docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 8080
-container-ip 172.17.0.2 -container-port 8000`. /proc/<pid>/net/fib_trie tells the addresses of a process's network namespace: an
address line is followed by one that ends in `/32 host LOCAL` (net/ipv4/fib_trie.c).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

from moetuned.parse.kernel_numbers import whole_number

_ON_LOOPBACK = ("0.0.0.0", "127.0.0.1", "::", "")  # noqa: S104  recognised, not bound
MOST_PORT = 65535


def local_addresses(fib_trie: str) -> frozenset[str]:
    """IPv4 addresses of the network namespace, without loopback."""
    found, last = set(), ""
    for line in fib_trie.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "|--":
            last = words[1]
        elif words == ["/32", "host", "LOCAL"] and last and not last.startswith("127."):
            found.add(last)
    return frozenset(found)


def published_port(commands: Iterable[Sequence[str]], addresses: Collection[str], port: int) -> int | None:
    """The port on this machine's loopback that leads to `port` of a container with one of `addresses`; None: none is known."""
    for argv in commands:
        if not argv or argv[0].rpartition("/")[2] != "docker-proxy":
            continue
        said = dict(itertools.pairwise(argv))
        if said.get("-proto") != "tcp" or said.get("-container-ip") not in addresses:
            continue
        inside, outside = whole_number(said.get("-container-port", "")), whole_number(said.get("-host-port", ""))
        if (
            inside == port
            and outside is not None
            and 0 < outside <= MOST_PORT
            and said.get("-host-ip", "") in _ON_LOOPBACK
        ):
            return outside
    return None
