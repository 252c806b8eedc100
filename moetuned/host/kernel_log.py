"""Reads from the kernel log (/dev/kmsg) whom the OOM killer ended. For after an end, not for a tick, and off the loop.

The daemon's own unit may not read it: there dd(1) does, run by the service manager. Its pids are those of the machine: from inside another pid namespace they would be taken for others, so there nothing is known.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time

from moetuned.host.bounded_program import run_bounded
from moetuned.host.outside_sandbox import can_leave
from moetuned.host.program_search import find_program
from moetuned.parse.kernel_log import oom_kills
from moetuned.schema.oom_kill import OomKill

KERNEL_LOG = "/dev/kmsg"
RECORD_BYTES = 16 << 10
"""More than the kernel gives at once (8 KiB); a shorter buffer is refused."""
MOST_RECORDS = 200_000
"""More than fit into the largest log buffer that anybody configures; a log that never ends is not read for ever."""
OUTSIDE_SECONDS = 20.0
"""The longest that reading outside of the daemon's unit may take, systemd-run with it; then nothing is known."""
_LOG_LIMIT_BYTES = 64 << 20
_FIRST_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO (include/linux/proc_ns.h): the machine's own."""
_DRIFT_RATIO, _SLACK_SECONDS = 1e-3, 2.0
"""The log's clock is the processor's, which no NTP corrects: it is off by some seconds after months."""


def oom_kills_since(start_ticks: int, clock_ticks: int, path: str = KERNEL_LOG) -> tuple[OomKill, ...] | None:
    """Kills since a process began (`start_ticks`: field 22 of /proc/<pid>/stat); None when that cannot be told.

    The log may reach back to boot and the process's pid may have been another's before. Blocks for milliseconds; for some
    seconds (`OUTSIDE_SECONDS`, and what ending it takes) where it is read outside.
    """
    if not own_pids():
        return None
    records = read_records(path)
    if records is None:
        return None
    # Process times count suspended time, the log's clock does not (proc(5), printk).
    suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    began = start_ticks / clock_ticks - suspended
    since = began - _SLACK_SECONDS - _DRIFT_RATIO * max(0.0, began)
    return tuple(kill for kill in oom_kills(records) if kill.at_seconds >= since)


def own_pids() -> bool:
    """Whether pids here are those of the kernel log."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def read_records(path: str = KERNEL_LOG) -> list[str] | None:
    """All that the log holds; None when it may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return _read_outside(path)
    records: list[str] = []
    try:
        while len(records) < MOST_RECORDS:
            try:
                record = os.read(descriptor, RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # Overwritten meanwhile: the next read gives the oldest that is left.
                    continue
                return None
            if not record:
                break
            records.append(record.decode("utf-8", "replace"))
    finally:
        os.close(descriptor)
    return records


def _read_outside(path: str) -> list[str] | None:
    """All that the log holds, read where this process may not; None when that cannot be done either."""
    program = find_program("dd")
    if program is None or not can_leave():
        return None
    # It ends with an error where there is no more to read: one read is one record, and the last would wait for the next.
    command = (program, f"if={path}", "iflag=nonblock", f"bs={RECORD_BYTES}", f"count={MOST_RECORDS}", "status=none")
    try:
        ended = run_bounded(
            command, {"LC_ALL": "C"}, OUTSIDE_SECONDS, b"", _LOG_LIMIT_BYTES, errors_apart=True, outside=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return records_of(ended.output.decode("utf-8", "replace")) or None


def records_of(text: str) -> list[str]:
    """The records of a log that was read as one text: a line that begins with a blank goes on with the record before."""
    records: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(" ") and records:
            records[-1] += line
        else:
            records.append(line)
    return records
