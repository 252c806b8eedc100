"""A model can be opened, mapped, read ahead and read in.

For: warming.

Tried: the first page of the model is mapped and read in (MADV_POPULATE_READ), with advice (posix_fadvise(2)) that changes nothing.

No: the model may not be read by moetuned (`ProtectHome=yes`, an owner's file without CAP_DAC_READ_SEARCH), or a `SystemCallFilter=` forbids a call.

Unknown: the model is not there.

Do: `ProtectHome=read-only` and CAP_DAC_READ_SEARCH in `CapabilityBoundingSet=`, in a drop-in of moetuned.service.
"""

from __future__ import annotations

import errno
import mmap
import os

from moetuned.host.rehearsal_answers import YES, of_error, unknown
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("madvise", "mmap", "munmap", "posix_fadvise", "pread")
_POPULATE_READ = 22
"""MADV_POPULATE_READ (include/uapi/asm-generic/mman-common.h)."""
_CURE = "in a drop-in of moetuned.service: ProtectHome=read-only, CAP_DAC_READ_SEARCH in CapabilityBoundingSet="


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Each model that the config names and that is warmed."""
    actions = (*((Action.WARM,) if facts.warms else ()), *((Action.PROTECT,) if facts.protects else ()))
    if not actions:
        return ()
    return tuple(
        Need(one.model, actions, one.name) for one in facts.backends if one.model is not None and one.by != "none"
    )


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        descriptor = os.open(need.subject, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            os.posix_fadvise(descriptor, 0, 4096, os.POSIX_FADV_NORMAL)
            with mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ) as page:
                page.madvise(_POPULATE_READ)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.EINVAL:  # before Linux 5.14 it is read in another way
            return YES
        return of_error(error, need.subject, _CURE)
    except ValueError:
        return unknown(f"{need.subject} is empty")
    return YES
