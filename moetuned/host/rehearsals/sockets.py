"""Sockets of each family can be made.

For: AF_UNIX: systemd, container engines, the journal. AF_INET and AF_INET6: backends over HTTP and alerts. AF_NETLINK: news of disks.

Tried: a socket of the family is made and closed.

No: `RestrictAddressFamilies=` without it, or (IPv6) a kernel without it.

Unknown: no socket can be had for another reason.

Do: `RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK` in a drop-in of moetuned.service.
"""

from __future__ import annotations

import socket

from moetuned.host.rehearsal_answers import YES, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_UNIX")
_UEVENTS = 15
"""NETLINK_KOBJECT_UEVENT (include/uapi/linux/netlink.h)."""
_CURE = "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """All families; what a manager is told goes over AF_UNIX."""
    found = [Need(family, (Action.OBSERVE, Action.ALERT)) for family in CALLS]
    managed = [one for one in facts.backends if one.by in ("systemd", "docker")]
    return (*found, *(Need("AF_UNIX", (Action.RESTART,), one.name) for one in managed))


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    netlink = need.subject == "AF_NETLINK"
    family = getattr(socket, need.subject)
    kind = socket.SOCK_RAW if netlink else socket.SOCK_STREAM
    try:
        socket.socket(family, kind | socket.SOCK_CLOEXEC, _UEVENTS if netlink else 0).close()
    except OSError as error:
        return of_error(error, need.subject, f"in a drop-in of moetuned.service: {_CURE}")
    return YES
