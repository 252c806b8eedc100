"""Runs a program that may hang or talk without end: a deadline for it and all it started, and a limit on what is kept of its output."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from moetuned.host.run_identity import Identity

if TYPE_CHECKING:
    from moetuned.host.outside_sandbox import Outside

log = logging.getLogger(__name__)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of what runs with an environment that is not the daemon's."""
OUTPUT_LIMIT_BYTES = 64 << 10
TERM_SECONDS = 2.0
KILL_SECONDS = 2.0
_READS = 4
_LOOK_SECONDS = 0.5


class Ended(msgspec.Struct, frozen=True):
    """How it ended. `exit_code` None: by a signal or the deadline; `cut`: more came than was kept.

    `output` is both streams, or standard output alone where `errors` were asked for apart.
    """

    exit_code: int | None
    timed_out: bool
    output: bytes
    cut: bool
    errors: bytes = b""


class _Call(msgspec.Struct, frozen=True):
    """What `run_bounded` was asked for."""

    command: Sequence[str]
    environment: Mapping[str, str]
    seconds: float
    payload: bytes
    limit_bytes: int
    errors_apart: bool
    identity: Identity | None


def run_bounded(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    payload: bytes = b"",
    limit_bytes: int = OUTPUT_LIMIT_BYTES,
    errors_apart: bool = False,
    identity: Identity | None = None,
    outside: bool = False,
) -> Ended:
    """Run `command` in / with this environment and `payload` on its standard input, and wait for it, not for what it leaves running.

    `identity`: whom to run it as (setgroups, setgid and setuid before the program; needs root); None: as this process runs. After
    `seconds` its process group gets SIGTERM and 2 s later SIGKILL. `outside`: it is somebody else's program and may need what the daemon's
    unit takes away, so the service manager runs it where there is one (`host/outside_sandbox.py`). Raises OSError, ValueError or
    subprocess.SubprocessError when it cannot be started.
    """
    call = _Call(command, environment, seconds, payload, limit_bytes, errors_apart, identity)
    if outside:
        ended = _run_outside(call)
        if ended is not None:
            return ended
    return _run(call)


def _run_outside(call: _Call) -> Ended | None:
    """None: it was not run, and has to be run here."""
    from moetuned.host.outside_sandbox import inside, leave

    away = leave(call.command, call.environment, call.seconds, call.identity)
    if away is None:
        return None
    try:
        instead = msgspec.structs.replace(call, command=away.argv, environment=away.environment, identity=None)
        ended = _run(instead, away)
        end = away.end()
    finally:
        away.close()
    if end is not None:
        return msgspec.structs.replace(ended, exit_code=None if ended.timed_out else end.exit_code)
    if ended.timed_out:
        return ended
    said = printable_lines(ended.errors or ended.output)
    inside(f"systemd does not start them{f': {said[-1]}' if said else ''}")
    return None


def _run(call: _Call, away: Outside | None = None) -> Ended:
    """`away`: where it runs, if its command has it run elsewhere."""
    identity = call.identity
    process = subprocess.Popen(
        list(call.command),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if call.errors_apart else subprocess.STDOUT,
        cwd="/",
        env=dict(call.environment),
        start_new_session=True,
        umask=0o022,
        user=None if identity is None else identity.user,
        group=None if identity is None else identity.group,
        extra_groups=None if identity is None else list(identity.groups),
    )
    with contextlib.ExitStack() as stack:
        stack.callback(_close, process)
        stack.callback(_end_unwatched, process)
        descriptor = os.pidfd_open(process.pid)
        stack.callback(os.close, descriptor)
        _reset_oom_score(process.pid)
        kept = {stream.fileno(): bytearray() for stream in (process.stdout, process.stderr) if stream is not None}
        until = time.monotonic() + call.seconds
        ended, cut = _exchange(process, descriptor, call.payload, kept, call.limit_bytes, until)
        if ended and away is not None and away.end() is None:
            ended, more = _outlive(away, kept, call.limit_bytes, until)
            cut |= more
        if not ended:
            if away is not None:
                _end_elsewhere(away, descriptor)
            _end_group(process.pid, descriptor)
        try:
            code = process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("%s (pid %d) hangs in the kernel and cannot be ended", call.command[0], process.pid)
            code = -signal.SIGKILL
        output, errors = ([bytes(one) for one in kept.values()] + [b""])[:2]
        return Ended(code if code >= 0 else None, not ended, output, cut, errors)


def _outlive(away: Outside, kept: Mapping[int, bytearray], limit_bytes: int, until: float) -> tuple[bool, bool]:
    """Wait for a program whose systemd-run is gone before it: the OOM killer took that, or the bus ended. It must not be run once more.

    As `_exchange`: whether it ended in time, and whether output was dropped.
    """
    cut, open_still = False, set(kept)
    while away.runs():
        if time.monotonic() >= until:
            away.signal(signal.SIGTERM)
            time.sleep(TERM_SECONDS)
            return False, cut
        time.sleep(_LOOK_SECONDS)
        for reading in sorted(open_still):
            more, dropped = _read(reading, kept[reading], limit_bytes)
            cut |= dropped
            if not more:
                open_still.discard(reading)
    last = [_read(reading, kept[reading], limit_bytes)[1] for reading in open_still]
    return True, cut or any(last)


def _end_elsewhere(away: Outside, descriptor: int) -> None:
    """As `_end_group`, for what the service manager runs; what waits for it ends with it."""
    for number, patience in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        away.signal(number)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            selector.select(patience)


def _end_unwatched(process: subprocess.Popen[bytes]) -> None:
    """Whatever went wrong here: a program that nobody watches any more may not go on."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _reset_oom_score(pid: int) -> None:
    """The daemon is protected from the OOM killer; what it starts must not inherit that."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("0")


def _exchange(
    process: subprocess.Popen[bytes],
    descriptor: int,
    payload: bytes,
    kept: Mapping[int, bytearray],
    limit_bytes: int,
    deadline: float,
) -> tuple[bool, bool]:
    """Feed the program and read it until it ends. Returns whether it ended in time, and whether output was dropped."""
    assert process.stdin is not None
    feeding = process.stdin.fileno()
    cut = False
    left = memoryview(payload)
    os.set_blocking(feeding, False)
    with selectors.DefaultSelector() as selector:
        selector.register(feeding, selectors.EVENT_WRITE)
        for reading in kept:
            os.set_blocking(reading, False)
            selector.register(reading, selectors.EVENT_READ)
        selector.register(descriptor, selectors.EVENT_READ)
        while (wait := deadline - time.monotonic()) > 0:
            ready = {key.fd for key, _ in selector.select(wait)}
            if feeding in ready:
                left = _feed(feeding, left)
                if not left:
                    selector.unregister(feeding)
                    process.stdin.close()
                    feeding = -1
            for reading, output in kept.items():
                if reading in ready:
                    more, dropped = _read(reading, output, limit_bytes)
                    cut |= dropped
                    if not more:
                        selector.unregister(reading)
            if descriptor in ready:
                # one of its children may hold a pipe open for ever: take what is there and go
                last = [_read(reading, output, limit_bytes)[1] for reading, output in kept.items()]
                return True, cut or any(last)
    return False, cut


def _feed(descriptor: int, left: memoryview) -> memoryview:
    try:
        return left[os.write(descriptor, left) :]
    except BlockingIOError:
        return left
    except OSError:  # it does not read its standard input
        return left[:0]


def _read(descriptor: int, output: bytearray, limit_bytes: int) -> tuple[bool, bool]:
    """Read what is there, at most four pieces a call. Returns whether more may come and whether some was dropped."""
    dropped = False
    for _ in range(_READS):
        try:
            data = os.read(descriptor, OUTPUT_LIMIT_BYTES)
        except BlockingIOError:
            return True, dropped
        except OSError:
            return False, dropped
        if not data:
            return False, dropped
        room = limit_bytes - len(output)
        dropped |= len(data) > room
        output += data[:room]
    return True, dropped


def _end_group(pid: int, descriptor: int) -> None:
    """TERM, then KILL, to the whole process group. Its leader is not reaped yet, so its number is still its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        selector.select(TERM_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def printable_lines(output: bytes) -> list[str]:
    """Lines fit for a log: control characters replaced, at most 100 lines of 500 characters."""
    lines = output.decode("utf-8", "replace").splitlines()
    return ["".join(char if char.isprintable() else "?" for char in line[:500]) for line in lines[:100] if line.strip()]
