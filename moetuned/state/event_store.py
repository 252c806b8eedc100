"""Events that outlive the daemon: JSON lines in two files of bounded size, the newest in events.jsonl, those before in events.jsonl.1.

Any line that makes no sense is passed over: a last line that was cut by a crash, one of a newer version.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import msgspec

from moetuned.host.durable_file import check_private, make_private_directory, read_private
from moetuned.schema.event import Event

FILE_NAME = "events.jsonl"
LIMIT_BYTES = 1 << 20
"""Of each of the two files: some thousands of events."""
_LINE_LIMIT_BYTES = 64 << 10
_NO_CALENDAR_SECONDS = 253402300800.0
"""The year 10000: what is later was not written by any clock."""
_decoder = msgspec.json.Decoder(Event)


def event_file(directory: str) -> str:
    """The file that new events go to."""
    return os.path.join(directory, FILE_NAME)


def append(events: Sequence[Event], directory: str) -> None:
    """Write them at the end of the file (mode 0600), which becomes the older of the two when it is full. Raises OSError."""
    lines = b"".join(msgspec.json.encode(event)[:_LINE_LIMIT_BYTES] + b"\n" for event in events)
    make_private_directory(directory)
    path = event_file(directory)
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(path).st_size > max(0, LIMIT_BYTES - len(lines)):
            os.replace(path, f"{path}.1")
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with open(descriptor, "ab", buffering=0) as file:
        check_private(descriptor, path)  # else nobody would read it
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # the last one was cut: it must not spoil this one
        try:
            while lines:
                lines = lines[file.write(lines) :]
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)  # they are written again, all of them
            raise


def last(count: int, directory: str) -> list[Event]:
    """The newest that are kept, oldest first. Raises OSError."""
    found: list[Event] = []
    path = event_file(directory)
    for each in (path, f"{path}.1"):
        lines = read_private(each, 2 * LIMIT_BYTES).rsplit(b"\n", count - len(found) + 1)
        if len(lines) > count - len(found) + 1:
            lines = lines[1:]  # the rest, as one piece
        found = list(_events(lines)) + found
        if len(found) >= count:
            break
    return found[-count:]


def read_all(directory: str) -> list[Event]:
    """All that are kept, oldest first. Raises OSError."""
    path = event_file(directory)
    older, newer = (read_private(each, 2 * LIMIT_BYTES) for each in (f"{path}.1", path))
    return [*_events(older.split(b"\n")), *_events(newer.split(b"\n"))]


def _events(lines: list[bytes]) -> Iterator[Event]:
    for line in lines:
        if line and len(line) <= _LINE_LIMIT_BYTES:
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                event = _decoder.decode(line)
                if 0 <= event.wall_seconds < _NO_CALENDAR_SECONDS:
                    yield event
