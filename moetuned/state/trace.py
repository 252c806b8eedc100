"""Recorded seconds of a machine: JSON lines, plain or gzip, read one at a time.

Every line has `t` (CLOCK_MONOTONIC seconds), `wall` (Unix seconds) and `files` {absolute path: raw text or null}; `http` {path:
body or "!reason"} and `residency` {cached, evicted, recently_evicted} where they were asked for. The first line adds
`trace: 1`, `backend` {name, pid, url, model: {path, size, dev, layout}} and `static` {path: raw text}. A trace comes from
somebody else's machine: its size is bounded, its paths are only names, and every fault names file and line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from moetuned.decide.facts import BackendFacts
from moetuned.schema.model import ModelLayout
from moetuned.schema.sample import BackendIdentity, RawBackend, RawResidency, RawSample

MAX_LINE_BYTES = 16 << 20
MAX_LINES = 1_000_000


class TraceError(ValueError):
    """A trace that cannot be read; the text names file and line."""


class TraceModel(msgspec.Struct, frozen=True):
    """The model of a recorded backend. `dev` is major:minor of the file system it is on."""

    path: str | None = None
    size: int | None = None
    dev: str | None = None
    layout: ModelLayout | None = None


class TraceBackend(msgspec.Struct, frozen=True):
    """The recorded backend."""

    name: str
    pid: int
    url: str | None = None
    model: TraceModel | None = None


class _Line(msgspec.Struct):
    t: float
    wall: float
    files: dict[str, str | None]
    http: dict[str, str] | None = None
    residency: RawResidency | None = None
    trace: int | None = None
    backend: TraceBackend | None = None
    static: dict[str, str | None] | None = None


class Trace(msgspec.Struct, frozen=True):
    """A trace's first line, and its samples to come. `samples` can be gone through once."""

    backend: TraceBackend
    static: dict[str, str | None]
    identity: BackendIdentity
    facts: BackendFacts
    samples: Iterator[RawSample]


def read_trace(path: str) -> Trace:
    """Open a trace. Raises OSError and `TraceError`; so do its `samples` while they are gone through."""
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise TraceError(f"{path}: the trace is empty")
    if first.trace != 1 or first.backend is None:
        raise TraceError(f'{path}: line 1: this is no trace of version 1 ("trace": 1 and "backend" are missing)')
    backend, static = first.backend, first.static or {}
    identity = _identity(backend, first.files)
    model = backend.model
    facts = BackendFacts(
        model_bytes=None if model is None else model.size,
        layout=None if model is None else model.layout,
        disks=identity.disks,
        page_bytes=identity.page_bytes,
        clock_ticks=identity.clock_ticks,
    )
    return Trace(backend, static, identity, facts, _samples(backend.name, first, lines))


def _samples(name: str, first: _Line, rest: Iterator[_Line]) -> Iterator[RawSample]:
    yield _sample(name, first)
    for line in rest:
        yield _sample(name, line)


def _sample(name: str, line: _Line) -> RawSample:
    return RawSample(line.t, line.wall, line.files, {name: RawBackend(line.http or {}, line.residency)})


def _lines(path: str) -> Iterator[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    number = 0
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            while data := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(data) > MAX_LINE_BYTES or number > MAX_LINES:
                    raise TraceError(f"{path}: line {number}: longer than a trace may be")
                if data.strip():
                    yield _decode(decoder, data, path, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: after line {number}: the file is cut or damaged ({error})") from error


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes, path: str, number: int) -> _Line:
    try:
        line = decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: line {number}: {error}") from error
    if not isinstance(line, _Line):
        raise TraceError(f"{path}: line {number}: not an object")
    return line


def _identity(backend: TraceBackend, files: dict[str, str | None]) -> BackendIdentity:
    """Which of the recorded files belong to the backend; the recorder took only its own cgroup's."""
    directory, version = None, None
    for suffix, number in (("/memory.usage_in_bytes", 1), ("/memory.current", 2)):
        found = sorted((path for path in files if path.endswith(suffix)), key=len)
        if found and directory is None:
            directory, version = found[-1].removesuffix(suffix), number
    disks = {
        path.split("/")[3]
        for path, text in files.items()
        if path.startswith("/sys/block/") and path.endswith("/stat") and path.count("/") == 4 and text
    }
    return BackendIdentity(
        name=backend.name,
        pid=backend.pid,
        url=backend.url,
        cgroup_directory=directory,
        cgroup_version=version,
        disks=_model_disks(backend, files, disks),
    )


def _model_disks(backend: TraceBackend, files: dict[str, str | None], disks: set[str]) -> tuple[str, ...]:
    """The disk whose major:minor the model is on, or whose partition is; none when /proc/diskstats does not tell."""
    device = None if backend.model is None else backend.model.dev
    for line in (files.get("/proc/diskstats") or "").splitlines():
        fields = line.split()
        if len(fields) > 3 and f"{fields[0]}:{fields[1]}" == device:
            return tuple(sorted(disk for disk in disks if fields[2].startswith(disk)))[-1:]
    return ()
