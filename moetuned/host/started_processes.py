"""Finds what came of a start by the random word that was put into its environment: the process itself, and what it left behind.

The word is new for each start and recorded before it, so a daemon that was killed in between loses nobody, and nothing else can be taken
for its process. A process keeps the environment that it was started with over exec and gives it to its children.
"""

from __future__ import annotations

import contextlib
import os
import re

from moetuned.host.process_looks import ProcDirectory, proc_directory
from moetuned.host.processes import ARGUMENTS_LIMIT_BYTES, ProcessHandle, ProcessIdentity
from moetuned.parse.process import ENDED_STATES, parse_process, session_of

VARIABLE = "MOETUNED_START"
OWNER_VARIABLE = "MOETUNED_OWNER"
"""Whose backend it is: for when no record of its start could be written."""
_WORD = re.compile(r"[0-9a-f]{32}")


def find_started(word: str, root: str = "/") -> tuple[ProcessIdentity | None, tuple[ProcessIdentity, ...]]:
    """The process that was started with this word (it leads a session, the oldest that does), and all others that have it from it.

    Raises OSError, and ValueError for what is no such word. Looks at all processes, 20 microseconds each.
    """
    found = _with_word(word, root)
    leaders = [identity for identity, session in found if session == identity.pid]
    leader = min(leaders, key=lambda one: one.start_ticks, default=None)
    return leader, tuple(identity for identity, _ in found if identity != leader)


def find_owned(owner: str, root: str = "/") -> ProcessIdentity | None:
    """The process that was started as this owner's: it leads a session and belongs to this user; the oldest of several, None of none.

    Raises OSError. Looks at all processes, 20 microseconds each.
    """
    leaders = [identity for identity, session in _having(f"{OWNER_VARIABLE}={owner}", root) if session == identity.pid]
    mine = [identity for identity in leaders if _is_mine(identity.pid, root)]
    return min(mine, key=lambda one: one.start_ticks, default=None)


def _is_mine(pid: int, root: str) -> bool:
    try:
        return os.stat(os.path.join(root, "proc", str(pid))).st_uid == os.geteuid()
    except OSError:
        return False


def left_in_session(session: int, word: str, root: str = "/") -> tuple[ProcessHandle, ...]:
    """Processes that run in the session that this start began, without its leader, each held by a pidfd.

    The session's number alone could be another's by now; the word cannot. Raises as `find_started`.
    """
    found = []
    for identity, of in _with_word(word, root):
        if of == session and identity.pid != session:
            with contextlib.suppress(ProcessLookupError):
                found.append(ProcessHandle(identity))
    return tuple(found)


def _with_word(word: str, root: str) -> list[tuple[ProcessIdentity, int]]:
    """Running processes with the word, and their sessions."""
    if not _WORD.fullmatch(word):
        raise ValueError(f"{word!r} is no word of a start")
    return _having(f"{VARIABLE}={word}", root)


def _having(wanted: str, root: str) -> list[tuple[ProcessIdentity, int]]:
    """Running processes with this in their environment, and their sessions."""
    with proc_directory(root) as proc:
        found = [(pid, _look(proc, pid, wanted)) for pid in sorted(proc.pids())]
    return [(ProcessIdentity(pid, look[0]), look[1]) for pid, look in found if look is not None]


def _look(proc: ProcDirectory, pid: int, wanted: str) -> tuple[int, int] | None:
    try:
        if wanted not in proc.read(pid, "environ", ARGUMENTS_LIMIT_BYTES).split("\0"):
            return None
        stat = proc.read(pid, "stat")
    except OSError:
        return None
    counters, session = parse_process(pid, stat, None, None), session_of(stat)
    if counters is None or counters.start_ticks is None or session is None or counters.state in ENDED_STATES:
        return None
    return counters.start_ticks, session
