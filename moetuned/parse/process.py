"""/proc/<pid>/stat, status and io of a whole process, all its threads (Documentation/filesystems/proc.rst).

The command name in `stat` may hold anything, `)` and newlines too; the last `)` ends it. `status` escapes newlines itself.
"""

from __future__ import annotations

from moetuned.parse.kernel_numbers import line_kilobytes, line_number, whole_number
from moetuned.schema.sample import ProcessCounters

_STATE, _MAJOR_FAULTS, _USER_TICKS, _SYSTEM_TICKS, _START_TICKS = 0, 9, 11, 12, 19
"""Positions after the command name (fields 3, 12, 14, 15 and 22 of proc(5))."""

ENDED_STATES = frozenset("ZXx")
"""Zombie and dead: the process does nothing any more, its pid only waits to be collected."""


def parse_process(pid: int, stat: str | None, status: str | None, io: str | None) -> ProcessCounters | None:
    """Counters of process `pid`; None when `stat` could not be read or tells nothing (the process is gone)."""
    if stat is None:
        return None
    _, bracket, rest = stat.rpartition(")")
    fields = rest.split()
    if not bracket or not fields or len(fields[_STATE]) != 1:
        return None
    user, system = _field(fields, _USER_TICKS), _field(fields, _SYSTEM_TICKS)
    status = status or ""
    return ProcessCounters(
        pid=pid,
        start_ticks=_field(fields, _START_TICKS),
        state=fields[_STATE],
        major_faults=_field(fields, _MAJOR_FAULTS),
        cpu_ticks=None if user is None or system is None else user + system,
        rss_anon_bytes=line_kilobytes(status, "RssAnon"),
        rss_file_bytes=line_kilobytes(status, "RssFile"),
        rss_shmem_bytes=line_kilobytes(status, "RssShmem"),
        swap_bytes=line_kilobytes(status, "VmSwap"),
        locked_bytes=line_kilobytes(status, "VmLck"),
        read_bytes=line_number(io or "", "read_bytes", ": "),
    )


def parent_of(stat: str | None) -> int | None:
    """Pid of the parent in the text of /proc/<pid>/stat (field 4)."""
    fields = [] if stat is None else stat.rpartition(")")[2].split()
    return _field(fields, 1)


def session_of(stat: str | None) -> int | None:
    """Id of the session in the text of /proc/<pid>/stat (field 6): the pid of the process that began it."""
    fields = [] if stat is None else stat.rpartition(")")[2].split()
    return _field(fields, 3)


def _field(fields: list[str], position: int) -> int | None:
    """A number that has another field after it, so that it cannot be half a number of a cut text."""
    return whole_number(fields[position]) if position + 1 < len(fields) else None
