"""How much of a model is in the page cache can be seen.

For: residency, warming that knows what is missing, and what is learned of the use of experts.

Tried: cachestat(2), or mincore(2) where the kernel or the file system has no cachestat, for the first page of the model.

No: the model is neither this user's nor writable for it, and the kernel tells only those.

Unknown: the model is not there, or its path is only known once the backend runs.

Do: run moetuned as root with CAP_FOWNER or CAP_DAC_OVERRIDE, and cachestat and mincore in `SystemCallFilter=`.
"""

from __future__ import annotations

from moetuned.host.page_cache import PageCounter
from moetuned.host.rehearsal_answers import YES, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("cachestat", "mincore", "mmap", "munmap", "fstatfs")


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Each model that the config names."""
    return tuple(Need(one.model, (Action.OBSERVE,), one.name) for one in facts.backends if one.model is not None)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    counter = PageCounter()
    try:
        with counter.open(need.subject):
            counter.count(0, 1)
    except OSError as error:
        return of_error(error, need.subject, "run moetuned as root, with CAP_FOWNER in CapabilityBoundingSet=")
    return YES
