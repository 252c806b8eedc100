"""Records of /dev/kmsg, and what the OOM killer writes there (Documentation/ABI/testing/dev-kmsg, mm/oom_kill.c).

A record is `priority,sequence,microseconds,flags;text`. What programs write into the log has a facility (the priority without its lowest
three bits) that is not 0, so nobody but the kernel can name a victim. Control characters in the text are escaped by the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from moetuned.parse.process_name import NAME_LENGTH
from moetuned.schema.oom_kill import OomKill

_RECORD = re.compile(r"(\d{1,6}),\d{1,20},(\d{1,20}),[^;]*;([^\n]*)", re.ASCII)
_LEVELS = 8
# Since 4.19 "Memory cgroup out of memory: Killed process 812 (name) …"; before, "Killed process 812 (name) …" alone.
_KILLED = re.compile(
    r"(?:(?:Memory cgroup )?[Oo]ut of memory(?: \(\w{1,40}\))?: )?Killed process (\d{1,10}) \(", re.ASCII
)
_ROUND = re.compile(r"oom-kill:constraint=(\w{1,40}),", re.ASCII)
_LIMIT_OF = re.compile(r",oom_memcg=(/[^,]*)")
_MEMCG = "CONSTRAINT_MEMCG"
_PATH_LENGTH = 4 * NAME_LENGTH


def oom_kills(records: Iterable[str]) -> tuple[OomKill, ...]:
    """All kills in the records, in their order. A record that is cut or strange is left out."""
    found = []
    limit_of: str | None = None
    for record in records:
        match = _RECORD.match(record)
        if match is None or int(match[1]) >= _LEVELS:
            continue
        text = match[3]
        if (begun := _ROUND.match(text)) is not None:
            limit_of = _limit_of(begun[1], text)
        elif (killed := _KILLED.match(text)) is not None:
            # The line before says why, once for all that one round ends (memory.oom.group).
            found.append(OomKill(int(killed[1]), int(match[2]) / 1e6, limit_of))
    return tuple(found)


def _limit_of(constraint: str, text: str) -> str | None:
    if constraint != _MEMCG:
        return ""
    path = _LIMIT_OF.search(text)
    if path is None or len(path[1]) > _PATH_LENGTH or not path[1].isprintable():
        return None
    return path[1]
