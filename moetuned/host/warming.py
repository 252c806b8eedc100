"""Warms a model: starts the warming process in the backend's memory cgroup and follows it without blocking."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

import moetuned
from moetuned.host.processes import ProcessIdentity
from moetuned.host.spawn import StartError, child_environment
from moetuned.schema.model import ByteRange

_LINE_LIMIT_BYTES = 64 << 10
_START = "import sys; sys.path.insert(0, sys.argv[1]); from moetuned.host.warming_process import main; sys.exit(main())"
"""The same as `python -m moetuned.host.warming_process`, without what -m itself would import."""


class _Line(msgspec.Struct):
    """One line of the warming process."""

    done_bytes: int = 0
    state: str = "running"
    detail: str | None = None
    rate_bytes_per_second: float | None = None
    eta_seconds: float | None = None
    outside: str | None = None
    unwatched: str | None = None
    finished: bool | None = None
    seconds: float | None = None
    rss_bytes: int | None = None
    error: str | None = None


class WarmProgress(msgspec.Struct, frozen=True):
    """How far warming is. `state`: running | paused | done | stopped | failed; `error` says why it failed, in one sentence.

    `detail`: why it is paused, or why it stopped by itself. `rate_bytes_per_second`: of the last seconds. `eta_seconds`: until all is
    warm at that rate; None while it is unknown. `outside`: one sentence when it warms from outside the backend's cgroup;
    `unwatched`: what of the backend it cannot watch, and why.
    """

    state: str
    done_bytes: int
    goal_bytes: int
    seconds: float | None = None
    rss_bytes: int | None = None
    error: str | None = None
    detail: str | None = None
    rate_bytes_per_second: float | None = None
    eta_seconds: float | None = None
    outside: str | None = None
    unwatched: str | None = None

    @property
    def going_on(self) -> bool:
        """Whether its process still is there: running or paused."""
        return self.state in ("running", "paused")


class Warming:
    """A running warming process. Watch `fileno()` for reading, then call `advance()`."""

    def __init__(self, child: subprocess.Popen[bytes], plan: bytes, goal_bytes: int) -> None:
        """Use `warm_in_cgroup`."""
        assert child.stdin is not None
        assert child.stdout is not None
        self._child = child
        self._input = child.stdin
        self._output = child.stdout
        self._rest = b""
        self._stopped = False
        self._outcome: str | None = None
        self.progress = WarmProgress("running", 0, goal_bytes)
        os.set_blocking(self._output.fileno(), False)
        self._send(plan)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def fileno(self) -> int:
        """Its standard output."""
        return self._output.fileno()

    def advance(self) -> WarmProgress:
        """Read what it has said, never waiting for more. After done, stopped or failed everything is closed."""
        if not self.progress.going_on:
            return self.progress
        try:
            while chunk := os.read(self._output.fileno(), 1 << 16):
                self._take(chunk)
        except BlockingIOError:
            return self.progress
        self._end()
        return self.progress

    def stop(self) -> None:
        """Have it end after the pieces it is at; `advance` says when it has."""
        self._stopped = True
        self._close_input()

    def kill(self) -> None:
        """End it now and collect it."""
        self.stop()
        self._child.kill()
        if self.progress.going_on:
            self._end()

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
            pass  # It has ended; `advance` says how.

    def _take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[:_LINE_LIMIT_BYTES]
        for text in lines:
            try:
                line = msgspec.json.decode(text, type=_Line)
            except msgspec.MsgspecError:
                continue
            if line.error is not None:
                self._outcome = "failed"
            elif line.finished is not None:
                self._outcome = "done" if line.finished else "stopped"
            self.progress = WarmProgress(
                "paused" if line.state == "paused" else "running",
                max(line.done_bytes, self.progress.done_bytes),
                self.progress.goal_bytes,
                line.seconds,
                line.rss_bytes,
                line.error,
                line.detail,
                line.rate_bytes_per_second,
                line.eta_seconds,
                line.outside or self.progress.outside,
                line.unwatched or self.progress.unwatched,
            )

    def _end(self) -> None:
        """It closed its output: collect it."""
        self._close_input()
        self._output.close()
        code = self._child.wait()
        error = self.progress.error
        if self._outcome is None:
            self._outcome = "stopped" if self._stopped else "failed"
            error = None if self._stopped else f"the warming process ended unexpectedly (code {code})"
        self.progress = msgspec.structs.replace(
            self.progress, state=self._outcome, error=error, rate_bytes_per_second=None, eta_seconds=None
        )

    def _close_input(self) -> None:
        try:
            self._input.close()
        except OSError:
            pass


def warm_in_cgroup(
    paths: Sequence[str],
    ranges: Sequence[ByteRange],
    twice: Sequence[ByteRange] = (),
    *,
    cgroup_directory: str | None = None,
    rate_bytes_per_second: int | None = None,
    outside_when_refused: bool = False,
    backend: ProcessIdentity | None = None,
) -> Warming:
    """Start touching `twice` (what must stay) and then `ranges` of the model's part files.

    `cgroup_directory`: the backend's memory cgroup, joined first (None: stay where the daemon is); where that is refused it fails, or with
    `outside_when_refused` goes on and says so. `backend`: the process that comes first: warming pauses by itself while it reads or
    memory is under pressure (state "paused"), and stops when it ends. Raises StartError.
    """
    plan = msgspec.json.encode(
        {
            "paths": list(paths),
            "ranges": [(one.part, one.offset, one.length) for one in ranges],
            "twice": [(one.part, one.offset, one.length) for one in twice],
            "rate": rate_bytes_per_second,
            "cgroup": cgroup_directory,
            "outside": outside_when_refused,
            "backend": None if backend is None else (backend.pid, backend.start_ticks),
        }
    )
    above = os.path.dirname(os.path.dirname(os.path.abspath(moetuned.__file__)))
    try:
        child = subprocess.Popen(
            # -S: without site-packages the interpreter is 2 MiB smaller; the process needs only the standard library.
            [sys.executable, "-I", "-S", "-c", _START, above],
            env=child_environment(os.environ, {}),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise StartError(f"cannot start the warming process: {error}") from error
    return Warming(child, plan + b"\n", sum(one.length for one in (*ranges, *twice)))
