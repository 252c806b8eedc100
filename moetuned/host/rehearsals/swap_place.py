"""The directory of the swap file takes files, and gives them blocks.

For: swap files.

Tried: a file without a name (O_TMPFILE), one page of blocks for it; both are gone when it is closed.

No: the directory is read-only (`ProtectSystem=strict` without `ReadWritePaths=`), not this user's, or its file system gives no blocks in advance.

Unknown: the directory is not there yet, or its file system has no files without a name.

Do: `ReadWritePaths=` with the directory, in a drop-in of moetuned.service; or another tuning.swap.file.
"""

from __future__ import annotations

import errno
import os

from moetuned.host.rehearsal_answers import YES, no, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("fallocate", "fallocate64", "renameat2", "posix_fallocate")


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """The swap file's directory."""
    return () if facts.swap_file is None else (Need(os.path.dirname(facts.swap_file), (Action.SWAP_FILE,)),)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    cure = f"in a drop-in of moetuned.service: ReadWritePaths={need.subject}, or another tuning.swap.file"
    try:
        descriptor = os.open(need.subject, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, 4096)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            writable = os.access(need.subject, os.W_OK)
            return YES if writable else no(f"{need.subject} may not be written", cure)
        return of_error(error, need.subject, cure)
    return YES
