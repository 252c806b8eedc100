"""The file of prompts that warm a backend can be read.

For: `warm.prompts`.

Tried: it is opened for reading and closed.

No: it may not be read by moetuned (`ProtectHome=yes`).

Unknown: it is not there.

Do: another place for it, e.g. /etc/moetuned/prompts.yaml.
"""

from __future__ import annotations

import os

from moetuned.host.rehearsal_answers import YES, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Where the config names one."""
    return () if facts.prompts is None else (Need(facts.prompts, (Action.OBSERVE,)),)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        os.close(os.open(need.subject, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError as error:
        return of_error(error, need.subject, "put it elsewhere, e.g. /etc/moetuned/prompts.yaml")
    return YES
