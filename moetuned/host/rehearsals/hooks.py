"""The hooks of a directory may be run as root, and can be.

For: alerts of the kind exec.

Tried: the directory is looked at, and the mount that it lies on; nothing is run.

No: others than root may write it, or its file system is mounted noexec.

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
    """Each directory once."""
    return tuple(Need(directory, (Action.ALERT,)) for directory in facts.hook_directories)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        problem = distrust(need.subject)
        os.listdir(need.subject)
        flags = os.statvfs(need.subject).f_flag
    except OSError as error:
        return of_error(error, need.subject)
    if problem is not None:
        return no(problem)
    noexec = bool(flags & os.ST_NOEXEC)
    return no(f"{need.subject} is on a file system that is mounted noexec", "put it elsewhere") if noexec else YES
