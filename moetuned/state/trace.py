"""Recorded seconds of a machine: JSON lines, plain or gzip, read one at a time.

Every line has `t` (CLOCK_MONOTONIC seconds), `wall` (Unix seconds) and `files` {absolute path: raw text or null}; `http` {path:
body or "!reason"} and `residency` {cached, evicted, recently_evicted} where they were asked for. The first line adds
`trace: 1`, `backend` {name, pid, url, model: {path, size, dev, layout}} and `static` {path: raw text}; ours also have
`backend.identity`, which says which of the files are whose, `backend.facts` and `recorder`. Other keys are ignored. A trace comes from
somebody else's machine: its size is bounded, its paths are only names, and every fault names file and line.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from moetuned.decide.facts import BackendFacts
from moetuned.schema.model import ModelLayout
from moetuned.schema.sample import BackendIdentity, RawBackend, RawResidency, RawSample

MAX_LINE_BYTES = 16 << 20
MAX_LINES = 1_000_000
_GZIP = b"\x1f\x8b"
_PAGES = frozenset(1 << power for power in range(10, 20))
_MOST_TICKS = 10_000
_MOST_PLACES = 256


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
    identity: BackendIdentity | None = None
    """Which of the files belong to it; None: that is guessed from their paths."""
    facts: BackendFacts | None = None
    """What else signals need to know, e.g. how it was started; what `model` and `identity` say goes before it."""


class TraceRecorder(msgspec.Struct, frozen=True):
    """What made a trace: version of moetuned, seconds between samples, whether names of people and places were taken out."""

    version: str | None = None
    interval_seconds: float | None = None
    anonymous: bool | None = None


class _Line(msgspec.Struct):
    t: float
    wall: float
    files: dict[str, str | None]
    http: dict[str, str] | None = None
    residency: RawResidency | None = None
    trace: int | None = None
    backend: TraceBackend | None = None
    static: dict[str, str | None] | None = None
    recorder: TraceRecorder | None = None


class Trace(msgspec.Struct, frozen=True):
    """A trace's first line, and its samples to come. `samples` can be gone through once."""

    backend: TraceBackend
    static: dict[str, str | None]
    identity: BackendIdentity
    facts: BackendFacts
    samples: Iterator[RawSample]
    recorder: TraceRecorder = TraceRecorder()


def read_trace(path: str) -> Trace:
    """Open a trace. Raises OSError and `TraceError`; so do its `samples` while they are gone through."""
    lines = _lines(path)
    _, first = next(lines, (0, None))
    if first is None:
        raise TraceError(f"{path}: the trace is empty")
    if first.trace != 1 or first.backend is None:
        raise TraceError(f'{path}: line 1: this is no trace of version 1 ("trace": 1 and "backend" are missing)')
    backend, static = first.backend, first.static or {}
    if backend.identity is not None and (wrong := _unsound(backend, backend.identity)):
        raise TraceError(f"{path}: line 1: backend.identity: {wrong}")
    if backend.facts is not None and min(_counts(backend.facts)) < 0:
        raise TraceError(f"{path}: line 1: backend.facts: a size below 0")
    identity = backend.identity or _identity(backend, first.files)
    model = backend.model
    facts = msgspec.structs.replace(
        backend.facts or BackendFacts(),
        model_bytes=None if model is None else model.size,
        layout=None if model is None else model.layout,
        disks=identity.disks,
        page_bytes=identity.page_bytes,
        clock_ticks=identity.clock_ticks,
        address_known=backend.url is not None,
    )
    samples = _samples(path, backend.name, first, lines)
    return Trace(backend, static, identity, facts, samples, first.recorder or TraceRecorder())


def _samples(path: str, name: str, first: _Line, rest: Iterator[tuple[int, _Line]]) -> Iterator[RawSample]:
    yield _sample(name, first)
    at = first.t
    for number, line in rest:
        if line.t < at:
            raise TraceError(
                f"{path}: line {number}: its time (t) is before that of the line before; each recording is a file of its own"
            )
        at = line.t
        yield _sample(name, line)


def _sample(name: str, line: _Line) -> RawSample:
    return RawSample(line.t, line.wall, line.files, {name: RawBackend(line.http or {}, line.residency)})


def _lines(path: str) -> Iterator[tuple[int, _Line]]:
    """Line numbers and lines; gzip is known by its first bytes, whatever the file is called."""
    decoder = msgspec.json.Decoder(_Line)
    number = 0
    try:
        with open(path, "rb") as plain, _unpacked(plain) as file:
            while data := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(data) > MAX_LINE_BYTES or number > MAX_LINES:
                    raise TraceError(f"{path}: line {number}: longer than a trace may be")
                if data.strip():
                    yield number, _decode(decoder, data, path, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: after line {number}: the file is cut or damaged ({error})") from error


def _unpacked(file: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes, path: str, number: int) -> _Line:
    try:
        line = decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        said = (
            str(error) if data.endswith(b"\n") else "it was cut: the recording did not end well, or is still being made"
        )
        raise TraceError(f"{path}: line {number}: {said}") from error
    if not isinstance(line, _Line):
        raise TraceError(f"{path}: line {number}: not an object")
    return line


def _counts(facts: BackendFacts) -> tuple[int, ...]:
    """Numbers of the facts; batches of no token are as wrong as negative ones."""
    sizes = (facts.kv_cache_bytes, facts.prompt_cache_bytes, facts.earlier_cache_bytes)
    batches = (facts.batch_tokens, facts.micro_batch_tokens)
    return (0, *(size for size in sizes if size is not None), *(size - 1 for size in batches if size is not None))


def _unsound(backend: TraceBackend, identity: BackendIdentity) -> str | None:
    """Why an identity cannot be used, None when it can."""
    if (identity.name, identity.pid) != (backend.name, backend.pid):
        return "it is of another backend"
    if identity.page_bytes not in _PAGES or not 0 < identity.clock_ticks <= _MOST_TICKS:
        return f"no machine has pages of {identity.page_bytes} bytes and {identity.clock_ticks} clock ticks a second"
    if max(len(identity.disks), len(identity.limited_above), len(identity.kept)) > _MOST_PLACES:
        return f"more than {_MOST_PLACES} disks or cgroups"
    return None


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
