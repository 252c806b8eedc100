"""The directory that a backend saves its conversations in is there, and moetuned may remove what it saved.

For: conversations that outlive a restart.

Tried: the directory is looked at; nothing is written.

No: it is read-only for moetuned (`ProtectSystem=strict` without `ReadWritePaths=`), or not this user's.

Unknown: it is not there, or only the running backend tells it.

Do: `ReadWritePaths=` with the directory, in a drop-in of moetuned.service.
"""

from __future__ import annotations

import os

from moetuned.host.rehearsal_answers import YES, no, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Of each backend whose command names one."""
    return tuple(
        Need(one.slot_directory, (Action.SAVE_CONVERSATIONS,), one.name)
        for one in facts.backends
        if one.slot_directory is not None
    )


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        os.stat(need.subject)
    except OSError as error:
        return of_error(error, need.subject)
    cure = f"in a drop-in of moetuned.service: ReadWritePaths={need.subject}"
    writable = os.access(need.subject, os.W_OK | os.X_OK, effective_ids=True)
    return YES if writable else no(f"{need.subject} may not be written", cure)
