"""Processes: which there are, what they run, whether one still is the one it was, and signals that cannot hit another.

A pid alone is no identity (it is used again); pid and start time are. A pidfd holds on to one process for good, is readable when it
ended (pidfd_open(2)) and therefore fits into a selector.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Collection

import msgspec

from moetuned.host.fs import HostFS, RealFS
from moetuned.parse.process import ENDED_STATES, parent_of, parse_process
from moetuned.parse.process_maps import mapped_files
from moetuned.schema.sample import ProcessCounters

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
"""A second, in which /proc counts CPU time and when a process began."""

ARGUMENTS_LIMIT_BYTES = 256 << 10
MAPS_LIMIT_BYTES = 8 << 20
_REAL = RealFS()


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process for as long as it lives: `start_ticks` is field 22 of /proc/<pid>/stat (clock ticks since boot)."""

    pid: int
    start_ticks: int


class FoundProcess(msgspec.Struct, frozen=True):
    """A running process and its command line."""

    identity: ProcessIdentity
    argv: tuple[str, ...]


def pids() -> list[int]:
    """All processes of this pid namespace, smallest first. Raises OSError."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isascii() and name.isdigit())


def identify(pid: int, fs: HostFS = _REAL) -> ProcessIdentity | None:
    """Identity of the running process `pid`; None when there is none, or only a zombie."""
    counters = _counters(pid, fs)
    if counters is None or counters.start_ticks is None or counters.state in ENDED_STATES:
        return None
    return ProcessIdentity(pid, counters.start_ticks)


def is_alive(identity: ProcessIdentity, fs: HostFS = _REAL) -> bool:
    """Whether this very process still runs; a zombie does not."""
    return identify(identity.pid, fs) == identity


def has_ended(identity: ProcessIdentity, fs: HostFS = _REAL) -> bool:
    """Whether this very process is known to run no more. What cannot be read says nothing (EMFILE, ENOMEM, EACCES with hidepid).

    So for a moment both this and `is_alive` may be False.
    """
    try:
        text = fs.read_text(f"/proc/{identity.pid}/stat", 4096)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    counters = parse_process(identity.pid, text, None, None)
    if counters is None or counters.start_ticks is None:
        return False
    return counters.start_ticks != identity.start_ticks or counters.state in ENDED_STATES


def command_line(pid: int, fs: HostFS = _REAL) -> tuple[str, ...] | None:
    """Arguments of a process; None when it is gone, () for a kernel thread."""
    text = _read(f"/proc/{pid}/cmdline", fs, ARGUMENTS_LIMIT_BYTES)
    return None if text is None else _split(text)


def variables(pid: int, names: Collection[str], fs: HostFS = _REAL) -> dict[str, str]:
    """Those variables of a process as it was started that are named; empty when they may not be read."""
    wanted = frozenset(names)
    text = (_read(f"/proc/{pid}/environ", fs, ARGUMENTS_LIMIT_BYTES) or "") if wanted else ""
    pairs = (variable.partition("=") for variable in _split(text))
    return {name: value for name, equals, value in pairs if equals and name in wanted}


def environment(pid: int, prefix: str, fs: HostFS = _REAL) -> dict[str, str]:
    """Variables of a process as it was started whose names begin with `prefix`; empty when it may not be read.

    Only those asked for are kept: the rest may hold secrets.
    """
    text = _read(f"/proc/{pid}/environ", fs, ARGUMENTS_LIMIT_BYTES) or ""
    pairs = (variable.partition("=") for variable in _split(text))
    return {name: value for name, equals, value in pairs if equals and name.startswith(prefix)}


def parent(pid: int, fs: HostFS = _REAL) -> int | None:
    """Pid of its parent; None when it is gone."""
    return parent_of(_read(f"/proc/{pid}/stat", fs, 4096))


def executable(pid: int, fs: HostFS = _REAL) -> str | None:
    """Path of the program's file; None when gone or not allowed to know."""
    try:
        return fs.resolve_link(f"/proc/{pid}/exe")
    except OSError:
        return None


def mapped_models(pid: int, fs: HostFS = _REAL) -> tuple[str, ...]:
    """GGUF files the process has mapped, in order of address; () when none or unreadable."""
    return mapped_files(_read(f"/proc/{pid}/maps", fs, MAPS_LIMIT_BYTES) or "", ".gguf")


def find(
    matches: Callable[[tuple[str, ...]], bool], skip: Callable[[int], bool] = lambda _pid: False
) -> tuple[FoundProcess, ...]:
    """Running processes whose command line `matches`, by pid; those that end meanwhile are left out.

    A pid for which `skip` is true is not looked at (each look costs about 25 microseconds).
    """
    found = []
    for pid in pids():
        if skip(pid):
            continue
        argv = command_line(pid)
        if not argv or not matches(argv):
            continue
        identity = identify(pid)
        # Read again now that the identity is known: the pid may have changed hands in between.
        if identity is not None and command_line(pid) == argv and is_alive(identity):
            found.append(FoundProcess(identity, argv))
    return tuple(found)


class ProcessHandle:
    """One process held by a pidfd. Watch `fileno()` for reading: it becomes readable when the process ended."""

    def __init__(self, identity: ProcessIdentity) -> None:
        """Raises ProcessLookupError when that process does not run any more, OSError when pidfds are not to be had."""
        self.identity = identity
        self._descriptor = os.pidfd_open(identity.pid)
        if not is_alive(identity):
            self.close()
            raise ProcessLookupError(f"process {identity.pid} has ended")

    def fileno(self) -> int:
        """The pidfd."""
        return self._descriptor

    def ended(self) -> bool:
        """Whether the process has ended (its parent may not have collected it yet). Does not wait."""
        if self._descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, number: int) -> bool:
        """Send a signal to this process and no other; False when it has ended. Raises PermissionError."""
        if self.ended():
            return False
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Let go of the process."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _counters(pid: int, fs: HostFS) -> ProcessCounters | None:
    return parse_process(pid, _read(f"/proc/{pid}/stat", fs, 4096), None, None)


def _read(path: str, fs: HostFS, limit_bytes: int) -> str | None:
    try:
        return fs.read_text(path, limit_bytes)
    except OSError:
        return None


def _split(text: str) -> tuple[str, ...]:
    """Strings that each end in NUL; a title that a program wrote over its arguments may lack the last one."""
    return tuple(text.removesuffix("\0").split("\0")) if text else ()
