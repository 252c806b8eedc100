"""Swapping a file or device on and off (swapon(2)).

The daemon's own unit may do neither: where the kernel says EPERM, the service manager runs a process that may.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from moetuned.host.bounded_program import run_bounded
from moetuned.host.outside_sandbox import Outside, can_leave, leave
from moetuned.host.spawn import child_environment
from moetuned.host.swap_signature import SwapError
from moetuned.parse.kernel_numbers import single_number
from moetuned.schema.swap import HIGHEST_PRIORITY

Progress = Callable[[int], None]
"""Called about once a second with the bytes that are still to be read back."""

_PREFER_FLAG = 0x8000
_POLL_SECONDS = 1.0
_LOCK_SECONDS = 0.2
_KILLED_SECONDS = 30.0
"""So long the kernel may take to notice, in a process that is not a child, that it was killed."""
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from moetuned.host.swap_off_process import main; sys.exit(main())"
)
_ON = (
    "import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True); "
    "done = libc.swapon(os.fsencode(sys.argv[1]), int(sys.argv[2])) == 0; print(0 if done else ctypes.get_errno())"
)
_ON_SECONDS = 60.0
_LONGEST_SECONDS = 24 * 3600.0
"""What nobody waits for any more is ended then."""

_libc = ctypes.CDLL(None, use_errno=True)


def swap_on(path: str, priority: int | None) -> None:
    """Swap on a file or device with a swap signature; `priority` None: below all others. Raises OSError as the kernel answers."""
    if priority is not None and not 0 <= priority <= HIGHEST_PRIORITY:
        raise ValueError(f"{priority} is no priority")
    flags = 0 if priority is None else _PREFER_FLAG | priority
    if _libc.swapon(os.fsencode(path), flags) != 0:
        number = ctypes.get_errno()
        if number == errno.EPERM and can_leave():
            number = _swap_on_outside(path, flags)
        if number != 0:
            raise OSError(number, os.strerror(number), path)


def _swap_on_outside(path: str, flags: int) -> int:
    """swapon(2) outside of the daemon's unit (`outside_sandbox.can_leave`). The error's number, 0 for none."""
    command = (sys.executable, "-I", "-S", "-c", _ON, path, str(flags))
    try:
        ended = run_bounded(command, {}, _ON_SECONDS, errors_apart=True, outside=True)
    except (ValueError, subprocess.SubprocessError):
        return errno.EPERM
    number = single_number(ended.output.decode("ascii", "replace"))
    return errno.EIO if number is None else number


def wait_for_swap_off(path: str, patience_seconds: float | None = None) -> bool:
    """Wait until no process that `swap_off_slowly` started swaps `path` off any more, also one of a daemon that was killed.

    False: one still does after `patience_seconds` (None: any time). Raises OSError.
    """
    until = None if patience_seconds is None else time.monotonic() + patience_seconds
    while _is_locked(path):
        if until is not None and time.monotonic() >= until:
            return False
        time.sleep(_LOCK_SECONDS)
    return True


def swap_off_slowly(
    path: str,
    watch: Callable[[], int | None] = lambda: None,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
    is_on: Callable[[], bool] = lambda: False,
) -> None:
    """Swap off; everything it holds is read back into memory first, which may take minutes.

    In a process of its own (see `swap_off_process`). `watch` is called about once a second and gives the bytes still to be read
    back, for `progress`. After `patience_seconds` (None: any time), or when `watch` or anything else raises, that process is killed. The
    kernel notices that between two pages, which takes seconds where much is swapped out, and this returns only then: the swap
    is on as before, or it was swapped off after all. So after an error, look. Where somebody else swaps it off just now, the
    kernel answers as if it were not on; when `is_on` says otherwise, this waits for that one.

    Raises OSError as the kernel answers (EINVAL: it is not on; ENOMEM), ETIMEDOUT, EBUSY (somebody else still swaps it off).
    """
    until = None if patience_seconds is None else time.monotonic() + patience_seconds
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not wait_for_swap_off(path, left):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        try:
            _swap_off_once(path, watch, progress, until)
            return
        except OSError as error:
            if error.errno != errno.EINVAL or not is_on():
                raise
        if until is not None and time.monotonic() >= until:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        time.sleep(_POLL_SECONDS)


def _swap_off_once(path: str, watch: Callable[[], int | None], progress: Progress | None, until: float | None) -> None:
    number = _swap_off_by(path, watch, progress, until, None)
    if number == errno.EPERM and can_leave():
        away = leave(_off_command(1, path), {}, _LONGEST_SECONDS, None)
        if away is not None:
            try:
                number = _swap_off_by(path, watch, progress, until, away)
            finally:
                away.close()
    if number != 0:
        raise OSError(number, os.strerror(number), path)


def _off_command(parent: int, path: str) -> tuple[str, ...]:
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return (sys.executable, "-I", "-S", "-c", _START, package, str(parent), path)


def _swap_off_by(
    path: str, watch: Callable[[], int | None], progress: Progress | None, until: float | None, away: Outside | None
) -> int:
    """The error's number, 0 for none. `away`: where the process runs, if it is none of ours. Raises OSError as `swap_off_slowly`."""
    child = subprocess.Popen(
        _off_command(os.getpid(), path) if away is None else away.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(os.environ, {}) if away is None else away.environment,
        cwd="/",
    )

    def tell() -> None:
        left = watch()
        if progress is not None and left is not None:
            progress(left)
        if until is not None and time.monotonic() >= until:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)

    output, done = None, False
    try:
        while output is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, _ = child.communicate(timeout=_POLL_SECONDS)
            if output is None:
                tell()
        # systemd-run may be gone before what it had started: the OOM killer took it, or the bus ended.
        while away is not None and away.end() is None and away.runs():
            time.sleep(_POLL_SECONDS)
            tell()
        done = True
    finally:
        if not done:
            _end(child, path, away)
        if child.stdout is not None:
            child.stdout.close()
    code: int | None = child.returncode
    if away is not None:
        end = away.end()
        if end is None and not output.strip():
            return errno.EPERM
        code = 0 if end is None else end.exit_code
    if code != 0:
        # Killed from outside, by the OOM killer most likely: the kernel swaps on again what was half off.
        raise SwapError(errno.ENOMEM, "swapping off was ended from outside, by the OOM killer most likely", path)
    number = single_number(output.decode("ascii", "replace"))
    return errno.EIO if number is None else number


def _end(child: subprocess.Popen[bytes], path: str, away: Outside | None) -> None:
    """Kill what swaps off, and wait until the kernel has let go of it."""
    if away is not None:
        away.signal(signal.SIGKILL)
    if child.returncode is None:
        child.kill()
        child.wait()
    if away is not None:
        with contextlib.suppress(OSError):
            wait_for_swap_off(path, _KILLED_SECONDS)


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
