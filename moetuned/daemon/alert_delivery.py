"""One delivery of one event to one sink, from a worker thread: in a process of its own, or here, as the sink's module says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

import moetuned
from moetuned.alerts import Runs, SinkKind, SinkResult
from moetuned.host.bounded_program import SYSTEM_PATH, printable_lines, run_bounded
from moetuned.schema.alert import Sink
from moetuned.schema.event import Event
from moetuned.schema.units import parse_duration

START_SECONDS = 30.0
"""How long the process may take beyond the sink's own time: to start an interpreter takes long while memory is short."""
_START = "import sys; sys.path.insert(0, sys.argv[1]); from moetuned.alerts.__main__ import main; sys.exit(main())"


def deliver(kind: SinkKind, event: Event, config: Sink) -> Sequence[SinkResult]:
    """What became of it. Never raises for what the sink does or meets."""
    if kind.runs is not Runs.CHILD:
        return kind.send(event, config)
    started = time.monotonic()
    target = kind.target(config)
    seconds = parse_duration(config.timeout)
    deadline = seconds + START_SECONDS
    order = msgspec.json.encode({"event": event, "config": config, "seconds": int(deadline) + 10})
    above = os.path.dirname(os.path.dirname(os.path.abspath(moetuned.__file__)))
    try:
        end = run_bounded(
            [sys.executable, "-I", "-c", _START, above],
            {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
            deadline,
            order,
            errors_apart=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return [_failed(target, f"it could not be delivered: no process could be started: {why}", started)]
    if end.timed_out:
        return [_failed(target, f"it took longer than {deadline:g} s and was ended", started)]
    try:
        results = msgspec.json.decode(end.output, type=list[SinkResult])
    except (msgspec.MsgspecError, ValueError):
        said = [line for line in printable_lines(end.errors) if line.strip()]
        how = "by a signal" if end.exit_code is None else f"with code {end.exit_code}"
        return [_failed(target, f"the process that delivers it ended {how}{f': {said[-1]}' if said else ''}", started)]
    return [msgspec.structs.replace(each, duration_seconds=time.monotonic() - started) for each in results]


def _failed(target: str, detail: str, started: float) -> SinkResult:
    return SinkResult(target, False, detail, time.monotonic() - started, retry=True)
