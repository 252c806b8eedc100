"""A backend's process can be held (pidfd_open(2)), signalled, stopped and let on.

For: pauses, the end of a backend that is restarted or hangs.

Tried: signal 0 (which only asks) for a process of the same kind of user, and SIGSTOP and SIGCONT for a child of ours.

No: no CAP_KILL in `CapabilityBoundingSet=` for processes of other users, or a `SystemCallFilter=` without @process.

Unknown: there is no process of another user to try it on, and none can be made.

Do: CAP_KILL in `CapabilityBoundingSet=` and @process in `SystemCallFilter=`, in a drop-in of moetuned.service; or `relief.pause: false`.
"""

from __future__ import annotations

import os
import signal

from moetuned.host.rehearsal_answers import YES, of_error, unknown
from moetuned.host.stranger import stranger
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("pidfd_open", "pidfd_send_signal", "kill", "killpg", "waitpid")
_CURE = "in a drop-in of moetuned.service: CAP_KILL in CapabilityBoundingSet=, @process in SystemCallFilter="


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """For each backend that may be paused or ended."""
    found = []
    for one in facts.backends:
        actions = (Action.PAUSE,) if facts.pauses and one.by != "none" else ()
        if one.by == "process":
            actions = (*actions, Action.RESTART)
        if actions:
            found.append(Need("pidfd_send_signal", actions, one.name, one.other_user))
    return tuple(found)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    if need.other_user:
        with stranger() as other:
            if other is None:
                return unknown("there is no process of another user to try it on")
            return _signal(other.pid, (0, signal.SIGSTOP, signal.SIGCONT) if other.ours else (0,))
    child = os.fork()
    if child == 0:
        signal.alarm(2)
        while True:
            signal.pause()
    try:
        return _signal(child, (0, signal.SIGSTOP, signal.SIGCONT))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _signal(pid: int, numbers: tuple[int, ...]) -> Found:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        return of_error(error, "pidfd_open(2)", _CURE)
    try:
        for number in numbers:
            signal.pidfd_send_signal(descriptor, number)
    except OSError as error:
        return of_error(error, "pidfd_send_signal(2)", _CURE)
    finally:
        os.close(descriptor)
    return YES
