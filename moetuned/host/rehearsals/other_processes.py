"""What the kernel tells of a process of another user: what it reads, its environment, mappings, root and namespaces.

For: to know what a backend of another user reads, which model it maps, and whether it runs in a container. A pause or a page-out needs its mappings, too.

Tried: each file or link of a process of another user is opened and closed: a child of ours that has given its rights up, or one that is there.

No: no CAP_SYS_PTRACE in `CapabilityBoundingSet=`, or /proc is mounted so that it hides them (hidepid with a gid that is not root's).

Unknown: there is no process of another user to try it on, and none can be made. With `ProtectProc=invisible` that is so for a service that is not root's.

Do: `ProtectProc=default` and CAP_SYS_PTRACE in `CapabilityBoundingSet=`, in a drop-in of moetuned.service.
"""

from __future__ import annotations

import os

from moetuned.host.rehearsal_answers import YES, no, of_error, unknown
from moetuned.host.stranger import stranger
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()
_FILES = ("stat", "io", "environ", "maps", "net/tcp")
_LINKS = ("root", "cwd", "ns/mnt", "ns/net")
_CURE = "in a drop-in of moetuned.service: ProtectProc=default, CAP_SYS_PTRACE in CapabilityBoundingSet="


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Where backends may be other users'."""
    if not facts.discovers and not any(one.other_user for one in facts.backends):
        return ()
    named = [Need(f"/proc/PID/{name}", (Action.OBSERVE,), other_user=True) for name in (*_FILES, *_LINKS)]
    warmed = [one for one in facts.backends if facts.warms and one.by != "none" and one.other_user]
    return (*named, *(Need("/proc/PID/maps", (Action.PAGE_OUT,), one.name, other_user=True) for one in warmed))


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    name = need.subject.removeprefix("/proc/PID/")
    with stranger() as other:
        if other is None:
            return unknown("there is no process of another user to try it on")
        path = f"/proc/{other.pid}/{name}"
        try:
            if name in _LINKS:
                os.readlink(path)
            else:
                with open(path, "rb") as file:
                    file.read(1)
        except FileNotFoundError:
            if not other.ours:
                return unknown("the process of another user that it was tried on has ended")
            # hidepid hides the whole directory; the process is there.
            return no(f"{need.subject} of another user's process is hidden", _CURE)
        except OSError as error:
            return of_error(error, f"{need.subject} of another user's process", _CURE)
    return YES
