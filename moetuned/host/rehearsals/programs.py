"""Programs can be run at all.

For: starts, restarts, warming, locking, hooks and alerts.

Tried: /bin/true is run.

No: a `SystemCallFilter=` without execve, or `NoExecPaths=`.

Unknown: there is no /bin/true, or it does not end.

Do: @process and execve in `SystemCallFilter=`, no `NoExecPaths=` over programs and moetuned's Python.
"""

from __future__ import annotations

import os
import subprocess

from moetuned.host.rehearsal_answers import YES, of_error, unknown
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("Popen", "execve", "fork")
_TRUE = "/bin/true"
_SECONDS = 0.8


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Where anything is run."""
    actions = [Action.ALERT]
    if any(one.by != "none" for one in facts.backends):
        actions += [Action.START, Action.RESTART]
        actions += [Action.WARM] if facts.warms else []
        actions += [Action.PROTECT] if facts.protects else []
    return (Need(_TRUE, tuple(actions)),)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        code = subprocess.run([need.subject], timeout=_SECONDS, check=False, env={}, cwd=os.sep).returncode
    except subprocess.TimeoutExpired:
        return unknown(f"{need.subject} did not end")
    except OSError as error:
        return of_error(error, need.subject, "no NoExecPaths= over programs, execve in SystemCallFilter=")
    return YES if code == 0 else unknown(f"{need.subject} ended with code {code}")
