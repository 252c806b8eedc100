"""What `moetunectl record` does each second: read, redact, judge as a replay will, write down, ask for the next one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from moetuned import __version__
from moetuned.cli.record_choice import Choice
from moetuned.decide.detector import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.following import Followed, begin, follow
from moetuned.decide.tick_interval import IDLE_CPU_RATIO
from moetuned.host.clock import Clock
from moetuned.host.processes import environment
from moetuned.host.recording import Subject
from moetuned.host.static_texts import read_static
from moetuned.parse.assemble import assemble
from moetuned.parse.redact_command import VARIABLE_PREFIXES, redact_arguments
from moetuned.schema.sample import BackendIdentity, RawSample
from moetuned.schema.verdict import Phase, Verdict
from moetuned.state.trace import TraceBackend, TraceModel, TraceRecorder
from moetuned.state.trace_privacy import Privacy
from moetuned.state.trace_writer import TraceWriter, first_line, next_line

ENDED_SECONDS = 15.0
"""A recording goes on this long after its backend ended: how memory was then tells why."""

_ROUNDING_SECONDS = 1e-6

Pause = Callable[[float], bool]
"""Waits so many seconds; True: stop."""
Draw = Callable[[str, float, int, Verdict], None]
"""Gets name, seconds, bytes of the file and the verdict after each sample."""


class Source(Protocol):
    """Where samples come from: `host.recording.Recording`."""

    def read(self) -> RawSample:
        """The sample of now."""
        ...

    def ask(self, *, idle: bool = False) -> None:
        """Ask for what the next one is to have."""
        ...

    def wait(self, timeout_seconds: float = 2.0) -> None:
        """Until that is there."""
        ...


class Head(msgspec.Struct, frozen=True):
    """What does not change while a backend is recorded, redacted; `command` is its command line."""

    privacy: Privacy
    told: TraceBackend
    identity: BackendIdentity
    facts: BackendFacts
    static: dict[str, str | None]
    recorder: TraceRecorder
    command: tuple[str, ...]


class Ended(msgspec.Struct, frozen=True):
    """Why a recording ended; `last` None: nothing was written. `failed`: not as it was meant to."""

    why: str
    seconds: float
    last: RawSample | None
    failed: bool = False


def head_of(choice: Choice, interval_seconds: float, *, anonymous: bool) -> Head:
    """Read and redact what a trace begins with. Never raises for what cannot be read."""
    subject = choice.subject
    privacy = Privacy(subject.identity, anonymous=anonymous)
    told = privacy.backend(
        TraceBackend(subject.name, subject.process.pid, subject.url, _model(subject), facts=subject.facts)
    )
    variables: dict[str, str] = {}
    for prefix in VARIABLE_PREFIXES:
        variables |= environment(subject.process.pid, prefix)
    texts = read_static(subject.process, subject.disks, choice.devices.read_ahead_path)
    return Head(
        privacy=privacy,
        told=told,
        identity=privacy.identity,
        facts=subject.facts,
        static=privacy.static(texts, subject.argv, variables),
        recorder=TraceRecorder(__version__, interval_seconds, anonymous),
        command=redact_arguments(subject.argv, anonymous=anonymous),
    )


def _model(subject: Subject) -> TraceModel | None:
    if subject.model is None:
        return None
    identity = subject.model.identity
    try:
        number = os.stat(identity.paths[0]).st_dev
    except OSError:
        return TraceModel(identity.paths[0], identity.size_bytes, None, identity.layout)
    return TraceModel(identity.paths[0], identity.size_bytes, f"{os.major(number)}:{os.minor(number)}", identity.layout)


def run(
    head: Head,
    source: Source,
    writer: TraceWriter,
    clock: Clock,
    pause: Pause,
    draw: Draw,
    interval_seconds: float,
    seconds: float | None,
) -> Ended:
    """Record until `pause` says stop, `seconds` are over, the file is full or cannot be written, or the backend has ended.

    Closes the file.
    """
    began = due = clock.monotonic()
    last: RawSample | None = None
    absent_since: float | None = None
    following, settings = begin(head.told.name), DetectorSettings()
    source.ask()
    source.wait()
    why, failed = "stopped", False
    try:
        while True:
            sample = head.privacy.sample(source.read())
            followed = follow(following, assemble(sample, (head.identity,)), head.facts, settings)
            following, verdict = followed.following, followed.step.verdict
            if not writer.write(_line(head, sample, first=last is None)):
                why = "stopped at its largest size (--max-size)"
                break
            last = sample
            source.ask(idle=_does_nothing(followed))
            now = clock.monotonic()
            draw(head.told.name, now - began, writer.size_bytes, verdict)
            absent_since = _absent_since(absent_since, verdict, now)
            if absent_since is not None and now - absent_since >= ENDED_SECONDS:
                why = "the backend has ended"
                break
            # A fixed grid, but a late sample is not made up for by a burst.
            due = max(due + interval_seconds, now + interval_seconds / 10)
            if seconds is not None and due - began > seconds + _ROUNDING_SECONDS:
                break
            if pause(due - now):
                break
        writer.close()
    except OSError as error:
        why, failed = f"it could not be written any further: {error.strerror}", True
        with contextlib.suppress(OSError):
            writer.close()
    return Ended(why, clock.monotonic() - began, last, failed)


def _line(head: Head, sample: RawSample, *, first: bool) -> bytes:
    return first_line(sample, head.told, head.static, head.recorder) if first else next_line(sample)


def _does_nothing(followed: Followed) -> bool:
    cpu = followed.signals.get("cpu_ratio")
    return followed.step.verdict.phase == Phase.IDLE and cpu is not None and cpu < IDLE_CPU_RATIO


def _absent_since(before: float | None, verdict: Verdict, now: float) -> float | None:
    if verdict.phase != Phase.ABSENT:
        return None
    return now if before is None else before
