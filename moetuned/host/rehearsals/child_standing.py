"""A child's place before the OOM killer and its nice value can be set.

For: what warms and locks is to be the first that the OOM killer takes; a backend is not to inherit that the daemon is the last, nor its nice value.

Tried: a process of the rehearsal's own sets itself to 1000 (for warming), or, where the daemon is protected or has a better nice value, to 0.

No: /proc is read-only here, or a `SystemCallFilter=` forbids it.

Unknown: /proc is not there.

Do: nothing in the unit of moetuned forbids it; a container needs a writable /proc/self.
"""

from __future__ import annotations

import os

from moetuned.host.rehearsal_answers import YES, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("nice", "setpriority", "getpriority", "oom_score_adj")
_FIRST, _USUAL = "oom_score_adj 1000", "oom_score_adj and nice value 0"


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """For what warms and locks, and for backends that are children of the daemon."""
    actions = (*((Action.WARM,) if facts.warms else ()), *((Action.PROTECT,) if facts.protects else ()))
    found = [Need(_FIRST, actions)] if actions and facts.backends else []
    found += [Need(_USUAL, (Action.START,), one.name) for one in facts.backends if one.by == "process"]
    return tuple(found)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    value = "1000" if need.subject == _FIRST else "0"
    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as file:
            own = int(file.read())
        if value != "0" or own < 0:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write(value)
        if value == "1000":
            os.nice(1)
        elif os.getpriority(os.PRIO_PROCESS, 0) < 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    except OSError as error:
        return of_error(error, need.subject)
    return YES
