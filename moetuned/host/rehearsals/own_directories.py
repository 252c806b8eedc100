"""moetuned's own directories take files, durably, and have room.

For: the undo journal, events, heat and records (/var/lib/moetuned); values for restarts of units (/run/moetuned/backends); metrics as a file.

Tried: a file without a name (O_TMPFILE) is written, flushed (fsync(2)) and closed, which removes it; then the room that is left.

No: the directory is read-only (`ProtectSystem=strict` without `StateDirectory=`, `RuntimeDirectory=`), not this user's, or full.

Unknown: it is not there yet, or its file system has no files without a name.

Do: `StateDirectory=moetuned`, `RuntimeDirectory=moetuned` or `ReadWritePaths=` in a drop-in of moetuned.service; room on its disk.
"""

from __future__ import annotations

import errno
import os

from moetuned.host.rehearsal_answers import YES, no, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts
from moetuned.schema.units import format_bytes

CALLS = ("fsync", "statvfs")
FEWEST_BYTES = 4 << 20
"""What journal, events and heat take together, with room to write each anew."""


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """State and runtime directory, that of the metrics file, and that of values for units."""
    kept = [facts.state_directory, facts.runtime_directory]
    if facts.metric_file is not None:
        kept.append(os.path.dirname(facts.metric_file))
    units = [one.name for one in facts.backends if one.by == "systemd"]
    values = os.path.join(facts.runtime_directory, "backends")
    return (
        *(Need(directory, (Action.KEEP,)) for directory in dict.fromkeys(kept)),
        *(Need(values, (Action.RESTART,), name) for name in units),
    )


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    directory = need.subject
    # What is made later lies in the first directory above that is there.
    while not os.path.isdir(directory) and directory != "/":
        directory = os.path.dirname(directory)
    cure = f"in a drop-in of moetuned.service: ReadWritePaths={need.subject}"
    try:
        _write(directory)
        room = os.statvfs(directory)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return no(f"{need.subject} is full", "make room on its disk")
        return of_error(error, need.subject, cure)
    free = room.f_bavail * room.f_frsize
    # The values for a unit are some lines, which have just been shown to fit.
    if Action.KEEP in need.actions and 0 <= free < FEWEST_BYTES and room.f_blocks:
        return no(f"{need.subject} has only {format_bytes(free)} left", "make room on its disk")
    return YES


def _write(directory: str) -> None:
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        if not os.access(directory, os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory) from None
        return
    try:
        os.write(descriptor, bytes(4096))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
