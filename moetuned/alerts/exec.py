"""Sink `exec`: run every executable of a directory, in name order, for each event.

A hook gets the facts in its environment (PATH, LANG and MOETUNED_EVENT, MOETUNED_EVENT_ID, MOETUNED_BACKEND,
MOETUNED_MESSAGE, MOETUNED_REASONS, MOETUNED_TIME as ISO 8601 in UTC, MOETUNED_WALL_SECONDS) and the whole event as one
line of JSON on its standard input. What it prints goes to the daemon's log. It runs as root, in /, outside of
the limits of moetuned's unit, and is ended with everything it started when it takes longer than `timeout`.

Hooks run as root, so only root may be able to put them there: a hook, the directory, and every directory above either
must belong to root (or to the user the daemon runs as) and be writable by nobody else; directories like /tmp, where
only owners can rename (sticky bit), may lie above. Symbolic links are followed and judged by what they lead to. Files that
are not executable, hidden files and left-overs of editors and packages (`~`, `.dpkg-*`, `.rpm*`) are not run.
"""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import time
from datetime import UTC, datetime

import msgspec

from moetuned.alerts import Runs, SinkResult
from moetuned.host.bounded_program import OUTPUT_LIMIT_BYTES, SYSTEM_PATH, printable_lines, run_bounded
from moetuned.host.trusted_path import distrust
from moetuned.schema.alert import ExecAlert
from moetuned.schema.event import Event
from moetuned.schema.units import parse_duration

log = logging.getLogger(__name__)

RUNS = Runs.THREAD
MAX_HOOKS = 32
VALUE_LIMIT = 4096
_LEFT_OVERS = (".dpkg-", ".rpmsave", ".rpmnew", ".rpmorig", ".swp")


class HookResult(SinkResult, frozen=True, kw_only=True):
    """What became of one hook. `exit_code` None: it did not run, or was ended by a signal or the time-out."""

    exit_code: int | None = None


def target(config: ExecAlert) -> str:
    """The directory."""
    return config.directory


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
        import shlex

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


def _run_hook(path: str, event: Event, timeout_seconds: float) -> HookResult:
    started = time.monotonic()
    try:
        if (problem := distrust(path)) is not None:
            return HookResult(path, False, f"hook {path} is not run: {problem}")
        end = run_bounded([path], environment(event), timeout_seconds, msgspec.json.encode(event) + b"\n", outside=True)
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
    return HookResult(path, end.exit_code == 0 and not end.timed_out, text, duration, exit_code=end.exit_code)


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
    return {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", **own}


def _iso(wall_seconds: float) -> str:
    try:
        return datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""
