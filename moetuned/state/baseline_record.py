"""How backends that nobody supervises ran while they ran well, one file a process, so that the next daemon need not learn it in a thrash.

A process is known by its pid, its start time and the boot: a file of another one is never taken for it. The files lie beside the records
of started backends, under /run; a backend that moetuned started has all of this in its own record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from moetuned.host.durable_file import make_private_directory
from moetuned.host.processes import ProcessIdentity
from moetuned.state.backend_record import WarmBaseline

_NAME = re.compile(r"([1-9][0-9]{0,9})-([0-9]{1,20})\.json(\.new)?")
_LIMIT_BYTES = 1 << 18


class BaselineRecord(msgspec.Struct, frozen=True):
    """One process of one boot."""

    pid: int
    start_ticks: int
    boot_id: str
    warm: WarmBaseline


def write(process: ProcessIdentity, boot_id: str, warm: WarmBaseline, directory: str) -> None:
    """Write it in one step: a reader sees the old one or the new one. Raises OSError."""
    make_private_directory(directory)
    path = _path(process, directory)
    record = BaselineRecord(process.pid, process.start_ticks, boot_id, warm)
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(record))
    os.replace(f"{path}.new", path)


def read(process: ProcessIdentity, boot_id: str, directory: str) -> WarmBaseline | None:
    """What is recorded of this very process; None when nothing is, or what is there makes no sense. Raises OSError."""
    try:
        descriptor = os.open(_path(process, directory), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(_LIMIT_BYTES)
    try:
        record = msgspec.json.decode(text, type=BaselineRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    same = (record.pid, record.start_ticks, record.boot_id) == (process.pid, process.start_ticks, boot_id)
    return record.warm if same else None


def remove(process: ProcessIdentity, directory: str) -> None:
    """Forget it; nothing happens when there is none. Raises OSError."""
    try:
        os.unlink(_path(process, directory))
    except FileNotFoundError:
        pass


def prune(has_ended: Callable[[ProcessIdentity], bool], directory: str) -> None:
    """Remove what is of processes that have ended. Raises OSError; a directory that is not there holds nothing."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and (match[3] or has_ended(ProcessIdentity(int(match[1]), int(match[2])))):
            os.unlink(f"{directory}/{name}")


def _path(process: ProcessIdentity, directory: str) -> str:
    return f"{directory}/{process.pid}-{process.start_ticks}.json"
