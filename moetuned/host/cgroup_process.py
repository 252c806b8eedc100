"""Starts a small process of ours that works inside a backend's memory cgroup, and follows it without blocking.

It gets its plan as one line of JSON, answers in lines of JSON, and ends when its standard input closes, so it never outlives the
daemon. Its own end is `host.inside_cgroup`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import moetuned
from moetuned.host.spawn import StartError, child_environment

_LINE_LIMIT_BYTES = 64 << 10
_START = "import sys; sys.path.insert(0, sys.argv[1]); from importlib import import_module as load; sys.exit(load(sys.argv[2]).main())"
"""The same as `python -m MODULE`, without what -m itself would import."""


def why_ended(code: int) -> str:
    """Why one is gone that was not told to end and said nothing, by its exit code (a signal's number negative)."""
    return "the kernel or somebody killed it" if code == -9 else f"it ended unexpectedly (code {code})"


class CgroupProcess:
    """A running one. Watch `fileno()` for reading, then take `lines()`; once `code` is known it has ended and all is closed."""

    def __init__(self, child: subprocess.Popen[bytes], plan: bytes) -> None:
        """Use `start_small`."""
        assert child.stdin is not None
        assert child.stdout is not None
        self._child = child
        self._input = child.stdin
        self._output = child.stdout
        self._rest = b""
        self.stopped = False
        """Whether it was told to end."""
        self.code: int | None = None
        """Its exit code, a signal's number negative; None while it runs."""
        os.set_blocking(self._output.fileno(), False)
        self._send(plan)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def fileno(self) -> int:
        """Its standard output; -1 once it has ended."""
        return -1 if self._output.closed else self._output.fileno()

    def lines(self) -> list[bytes]:
        """The whole lines it wrote since the last time, never waiting for more. Sees its end: then `code` is set."""
        found: list[bytes] = []
        if self.code is not None:
            return found
        try:
            while chunk := os.read(self._output.fileno(), 1 << 16):
                *whole, rest = (self._rest + chunk).split(b"\n")
                found += whole
                self._rest = rest[:_LINE_LIMIT_BYTES]
        except BlockingIOError:
            return found
        self._collect()
        return found

    def stop(self) -> None:
        """Have it end as soon as it looks; `lines` sees it."""
        self.stopped = True
        try:
            self._input.close()
        except OSError:
            pass

    def kill(self) -> None:
        """End it now and collect it."""
        self.stop()
        if self.code is None:
            self._child.kill()
            self._collect()

    def _collect(self) -> None:
        try:
            self._input.close()
        except OSError:
            pass
        self._output.close()
        self.code = self._child.wait()

    def _send(self, plan: bytes) -> None:
        """Give it the plan. The pipe stays open afterwards: its end of file means stop."""
        pipe = self._input.fileno()
        try:
            if len(plan) > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ):
                # The whole plan goes into the pipe, so that nobody has to wait until the process reads.
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, len(plan))
        except OSError:
            pass  # Over /proc/sys/fs/pipe-max-size: wait for it, it reads as soon as it runs.
        left = memoryview(plan)
        try:
            while left:
                left = left[os.write(pipe, left) :]
        except BrokenPipeError:
            pass  # It has ended; `lines` sees it.


def start_small(module: str, plan: bytes, called: str | None = None) -> CgroupProcess:
    """Run `main()` of one of our modules as a process; `plan`: one line of JSON. Raises StartError, in which it is `called` so (None:
    by its module's name).
    """
    above = os.path.dirname(os.path.dirname(os.path.abspath(moetuned.__file__)))
    try:
        child = subprocess.Popen(
            # -S: without site-packages the interpreter is 2 MiB smaller; such a process needs only the standard library.
            [sys.executable, "-I", "-S", "-c", _START, above, module],
            env=child_environment(os.environ, {}),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise StartError(f"cannot start {called or module.rpartition('.')[2]}: {error}") from error
    return CgroupProcess(child, plan.rstrip(b"\n") + b"\n")
