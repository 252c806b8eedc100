"""The script that restarts a backend may be run as root, and can be.

For: restarts with `by: command`.

Tried: it is looked at, and the mount that it lies on; it is not run.

No: others than root may change it or its directory, it is not executable, or its file system is mounted noexec.

Unknown: it is not there.

Do: what the reason says: chown, chmod, or another place.
"""

from __future__ import annotations

import os

from moetuned.host.rehearsal_answers import YES, no, of_error
from moetuned.host.trusted_path import distrust
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """For each backend that a script restarts."""
    return tuple(
        Need(one.target, (Action.RESTART,), one.name)
        for one in facts.backends
        if one.by == "command" and one.target is not None
    )


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        problem = distrust(need.subject) or distrust(os.path.dirname(need.subject))
        flags = os.statvfs(need.subject).f_flag
    except OSError as error:
        return of_error(error, need.subject)
    if problem is not None:
        return no(problem)
    if flags & os.ST_NOEXEC:
        return no(f"{need.subject} is on a file system that is mounted noexec", "put it elsewhere")
    executable = os.access(need.subject, os.X_OK, effective_ids=True)
    return YES if executable else no(f"{need.subject} is not executable", f"chmod +x {need.subject}")
