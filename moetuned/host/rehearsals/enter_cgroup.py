"""A process of ours can enter a backend's cgroup.

For: warming and locking: pages are charged to the cgroup that touches them first.

Tried: a process of the rehearsal's own writes itself into the cgroup.procs of the backend's cgroup, and ends. While no backend runs, into the one that it is in already.

No: /sys/fs/cgroup is read-only (`ProtectControlGroups=yes`, a container), or the cgroup is not this user's.

Unknown: there is no memory cgroup here; or this user may not enter its own, which says nothing of a backend's.

Do: `ProtectControlGroups=no` in a drop-in of moetuned.service.
"""

from __future__ import annotations

import errno
import os

from moetuned.host import inside_cgroup
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.rehearsal_answers import YES, of_error, unknown
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()
_OWN = "the cgroup of a backend"


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """The cgroup of each backend that is warmed or locked."""
    actions = (*((Action.WARM,) if facts.warms else ()), *((Action.PROTECT,) if facts.protects else ()))
    if not actions:
        return ()
    return tuple(Need(one.cgroup or _OWN, actions, one.name) for one in facts.backends if one.by != "none")


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    directory = need.subject
    if directory == _OWN:
        own = memory_cgroup(os.getpid()).directory
        if own is None:
            return unknown("this process is in no memory cgroup that can be found")
        directory = own
    try:
        inside_cgroup.join(directory)
    except OSError as error:
        path = f"{directory}/cgroup.procs"
        if need.subject == _OWN and error.errno != errno.EROFS:
            return unknown(f"{path}: {error.strerror}")
        return of_error(error, path, "in a drop-in of moetuned.service: ProtectControlGroups=no")
    return YES
