"""Memory of a backend's process can be paged out (process_madvise(2)), and the kernel would do it for its model.

For: to learn which experts are used, and to make room before warming.

Tried: an advice about no memory at all, given to a process of the same kind of user: a child of ours that has given its rights up, or one that is there. Then whether the kernel's check of the model's file will pass: owner, CAP_FOWNER or may write it.

No: no CAP_SYS_NICE, or neither CAP_SYS_PTRACE nor (since Linux 6.14) CAP_PERFMON or CAP_SYS_ADMIN, in `CapabilityBoundingSet=`, a `SystemCallFilter=` without the call, a kernel before 5.10.

Unknown: there is no process of another user to try it on, and none can be made.

Do: CAP_SYS_PTRACE, CAP_SYS_NICE and CAP_FOWNER in `CapabilityBoundingSet=` in a drop-in of moetuned.service. Without it warming does without.
"""

from __future__ import annotations

import os
import signal

from moetuned.host.page_out import Advice, may_page_out, process_madvise
from moetuned.host.rehearsal_answers import YES, no, of_error, unknown
from moetuned.host.stranger import stranger
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("process_madvise", "pidfd_open")
_CURE = "in a drop-in of moetuned.service: CAP_SYS_PTRACE CAP_SYS_NICE CAP_FOWNER in CapabilityBoundingSet="


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """For each backend whose model is warmed, and for each model."""
    if not facts.warms:
        return ()
    warmed = [one for one in facts.backends if one.by != "none"]
    found = [Need("process_madvise", (Action.PAGE_OUT,), one.name, one.other_user) for one in warmed]
    found += [Need(one.model, (Action.PAGE_OUT,), one.name) for one in warmed if one.model is not None]
    return tuple(found)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    if need.subject != CALLS[0]:
        return _of_model(need.subject)
    if need.other_user:
        with stranger() as other:
            return unknown("there is no process of another user to try it on") if other is None else _advise(other.pid)
    child = os.fork()
    if child == 0:
        signal.alarm(2)
        while True:
            signal.pause()
    try:
        return _advise(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _advise(pid: int) -> Found:
    descriptor = os.pidfd_open(pid)
    try:
        process_madvise(descriptor, (), Advice.PAGEOUT)
    except OSError as error:
        return of_error(error, "process_madvise(2)", _CURE)
    finally:
        os.close(descriptor)
    return YES


def _of_model(path: str) -> Found:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        return of_error(error, path)
    try:
        if may_page_out(descriptor):
            return YES
    finally:
        os.close(descriptor)
    return no(f"the kernel pages {path} out only for its owner", "CAP_FOWNER in CapabilityBoundingSet=")
