"""Sink `exec`: run every executable of a directory, in name order, for each event.

A hook gets the facts in its environment (PATH, LANG and MOETUNED_EVENT, MOETUNED_EVENT_ID, MOETUNED_BACKEND,
MOETUNED_MESSAGE, MOETUNED_REASONS, MOETUNED_TIME as ISO 8601 in UTC, MOETUNED_WALL_SECONDS) and the whole event as one
line of JSON on its standard input. What it prints goes to the daemon's log. It runs as the daemon does, in /, and is
ended with everything it started when it takes longer than `timeout`.

Hooks run as root, so only root may be able to put them there: a hook, the directory, and every directory above either
must belong to root (or to the user the daemon runs as) and be writable by nobody else; directories like /tmp, where
only owners can rename (sticky bit), may lie above. Symbolic links are followed and judged by what they lead to. Files that
are not executable, hidden files and left-overs of editors and packages (`~`, `.dpkg-*`, `.rpm*`) are not run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shlex
import signal
import stat
import subprocess
import time
from datetime import UTC, datetime

import msgspec

from moetuned.alerts import SinkResult
from moetuned.schema.config import ExecAlert
from moetuned.schema.event import Event
from moetuned.schema.units import parse_duration

log = logging.getLogger(__name__)

MAX_HOOKS = 32
OUTPUT_LIMIT_BYTES = 64 << 10
VALUE_LIMIT = 4096
TERM_SECONDS = 2.0
KILL_SECONDS = 2.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LEFT_OVERS = (".dpkg-", ".rpmsave", ".rpmnew", ".rpmorig", ".swp")


class HookResult(SinkResult, frozen=True):
    """What became of one hook. `exit_code` None: it did not run, or was ended by a signal or the time-out."""

    exit_code: int | None = None


class _End(msgspec.Struct):
    exit_code: int | None
    timed_out: bool
    output: bytes
    cut: bool


def send(event: Event, config: ExecAlert) -> list[HookResult]:
    """Run the hooks, one after another; each result is logged. Never raises because of a hook."""
    results = _send(event, config)
    for result in results:
        log.log(logging.INFO if result.ok else logging.WARNING, "%s", result.detail)
    return results


def _send(event: Event, config: ExecAlert) -> list[HookResult]:
    directory = config.directory
    try:
        problem = distrust(directory)
        names = [] if problem else sorted(os.listdir(directory))
    except FileNotFoundError:
        problem = f"there is no such directory; make it with: install -d -m 755 -o root {shlex.quote(directory)}"
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
    if problem:
        return [HookResult(directory, False, f"hooks in {directory} are not run: {problem}")]
    hooks = [os.path.join(directory, name) for name in names if _is_hook(directory, name)]
    results = [_run_hook(path, event, parse_duration(config.timeout)) for path in hooks[:MAX_HOOKS]]
    if len(hooks) > MAX_HOOKS:
        results.append(HookResult(directory, False, f"only the first {MAX_HOOKS} hooks in {directory} are run"))
    return results


def _is_hook(directory: str, name: str) -> bool:
    if name.startswith(".") or name.endswith("~") or any(part in name for part in _LEFT_OVERS):
        return False
    try:
        mode = os.stat(os.path.join(directory, name)).st_mode
    except OSError:
        return True  # a dangling link: say so when it is to run
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def distrust(path: str) -> str | None:
    """Why what `path` leads to may not be run as root, with the command that mends it; None when it may.

    Raises OSError when it cannot be looked at.
    """
    trusted = {0, os.geteuid()}
    real = os.path.realpath(path, strict=True)
    current = real
    while True:
        status = os.stat(current)
        quoted = shlex.quote(current)
        if status.st_uid not in trusted:
            return f"{current} belongs to user {status.st_uid}, not to root; mend it with: chown root {quoted}"
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if writable and (current == real or not status.st_mode & stat.S_ISVTX):
            return f"{current} can be written by others than root; mend it with: chmod go-w {quoted}"
        if current == "/":
            return None
        current = os.path.dirname(current)


def _run_hook(path: str, event: Event, timeout_seconds: float) -> HookResult:
    started = time.monotonic()
    try:
        if (problem := distrust(path)) is not None:
            return HookResult(path, False, f"hook {path} is not run: {problem}")
        end = _run(path, event, timeout_seconds)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return HookResult(path, False, f"hook {path} could not be run: {why}", time.monotonic() - started)
    duration = time.monotonic() - started
    for line in printable_lines(end.output):
        log.info("hook %s: %s", os.path.basename(path), line)
    if end.cut:
        log.warning("hook %s: more output than %d KiB, the rest is dropped", path, OUTPUT_LIMIT_BYTES >> 10)
    if end.timed_out:
        text = f"hook {path} took longer than {timeout_seconds:g} s and was ended; mend it, or raise the sink's timeout"
    elif end.exit_code == 0:
        text = f"hook {path} done for {event.name} in {duration:.2f} s"
    elif end.exit_code is None:
        text = f"hook {path} was ended by a signal"
    else:
        text = f"hook {path} ended with code {end.exit_code}"
    return HookResult(path, end.exit_code == 0 and not end.timed_out, text, duration, end.exit_code)


def environment(event: Event) -> dict[str, str]:
    """The whole environment of a hook; values are bounded and hold no NUL."""
    facts = {
        "EVENT": event.name.value,
        "EVENT_ID": event.id,
        "BACKEND": event.backend or "",
        "MESSAGE": event.message,
        "REASONS": "\n".join(reason.text for reason in event.reasons),
        "TIME": _iso(event.wall_seconds),
        "WALL_SECONDS": f"{event.wall_seconds:.3f}",
    }
    own = {f"MOETUNED_{name}": value.replace("\0", "")[:VALUE_LIMIT] for name, value in facts.items()}
    return {"PATH": _PATH, "LANG": "C.UTF-8", **own}


def _iso(wall_seconds: float) -> str:
    try:
        return datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def _run(path: str, event: Event, timeout_seconds: float) -> _End:
    process = subprocess.Popen(
        [path],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=environment(event),
        start_new_session=True,
        umask=0o022,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(_close, process)
        stack.callback(_end_unwatched, process)
        descriptor = os.pidfd_open(process.pid)
        stack.callback(os.close, descriptor)
        _reset_oom_score(process.pid)
        output = bytearray()
        deadline = time.monotonic() + timeout_seconds
        ended, cut = _exchange(process, descriptor, msgspec.json.encode(event) + b"\n", output, deadline)
        if not ended:
            _end_group(process.pid, descriptor)
        try:
            code = process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("hook %s (pid %d) hangs in the kernel and cannot be ended", path, process.pid)
            code = -signal.SIGKILL
        return _End(code if code >= 0 else None, not ended, bytes(output), cut)


def _end_unwatched(process: subprocess.Popen[bytes]) -> None:
    """Whatever went wrong here: a hook that nobody watches any more may not go on."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _reset_oom_score(pid: int) -> None:
    """The daemon is protected from the OOM killer; what it starts must not inherit that."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("0")


def _exchange(
    process: subprocess.Popen[bytes], descriptor: int, payload: bytes, output: bytearray, deadline: float
) -> tuple[bool, bool]:
    """Feed the hook and read it until it ends. Returns whether it ended in time, and whether output was dropped."""
    assert process.stdin is not None
    assert process.stdout is not None
    feeding, reading = process.stdin.fileno(), process.stdout.fileno()
    cut = False
    left = memoryview(payload)
    os.set_blocking(feeding, False)
    os.set_blocking(reading, False)
    with selectors.DefaultSelector() as selector:
        selector.register(feeding, selectors.EVENT_WRITE)
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
            if reading in ready:
                more, dropped = _read(reading, output)
                cut |= dropped
                if not more:
                    selector.unregister(reading)
            if descriptor in ready:
                # one of its children may hold the pipe open for ever: take what is there and go
                return True, cut | _read(reading, output)[1]
    return False, cut


def _feed(descriptor: int, left: memoryview) -> memoryview:
    try:
        return left[os.write(descriptor, left) :]
    except BlockingIOError:
        return left
    except OSError:  # the hook does not read its standard input
        return left[:0]


def _read(descriptor: int, output: bytearray) -> tuple[bool, bool]:
    """Read what is there, at most four limits a call. Returns whether more may come and whether some was dropped."""
    dropped = False
    for _ in range(4):
        try:
            data = os.read(descriptor, OUTPUT_LIMIT_BYTES)
        except BlockingIOError:
            return True, dropped
        except OSError:
            return False, dropped
        if not data:
            return False, dropped
        room = OUTPUT_LIMIT_BYTES - len(output)
        dropped |= len(data) > room
        output += data[:room]
    return True, dropped


def _end_group(pid: int, descriptor: int) -> None:
    """TERM, then KILL, to the hook's whole process group. It is not reaped yet, so its number is still its own."""
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
