"""Records of backends that moetuned started, so that the next daemon takes them over instead of starting them twice.

They live under /run: pids mean nothing after a reboot, and the boot id in each guards a directory that outlived one. A record
also keeps what the next daemon could not find out by looking: which restarts count for the cool-down, how the backend was while
it ran well, and whether it has been warmed.

A record is written before the process is started, without a pid and with the word that its environment has (`host.started_processes`),
and amended before it is asked to end: a daemon may be killed at any moment, and the next one finishes what it began.
"""

from __future__ import annotations

import os
import re

import msgspec

from moetuned.decide.supervision import LaunchPlan
from moetuned.host.durable_file import make_private_directory
from moetuned.host.processes import ProcessIdentity
from moetuned.host.started_processes import find_started

DIRECTORY = "/run/moetuned/backends"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_LIMIT_BYTES = 1 << 20
MOST_RESTARTS = 32


class WarmSpeed(msgspec.Struct, frozen=True):
    """The fastest that was seen while so many slots were busy, and what a token cost to read then."""

    busy_slots: int
    tokens_per_second: float
    bytes_per_token: float
    missing_bytes_per_token: float | None = None


class WarmBaseline(msgspec.Struct, frozen=True):
    """How the process was while it ran well: page cache of its cgroup, what of its model was resident, its speeds.

    `thrash_begun_at`: CLOCK_MONOTONIC seconds of the thrash that was told to have begun, and whose end was not told yet.
    """

    speeds: tuple[WarmSpeed, ...] = ()
    cache_bytes: int | None = None
    resident_bytes: int | None = None
    thrash_begun_at: float | None = None


class BackendRecord(msgspec.Struct, frozen=True):
    """One started backend. `start_ticks` is field 22 of /proc/<pid>/stat; with it a pid that is used again is not mistaken. Both
    None: it is about to be started, or was and its daemon was killed before it could say so; `start_word` finds it.

    `relief_restarts_at`: CLOCK_MONOTONIC seconds of the restarts made to free memory, the last `MOST_RESTARTS`; that clock is of the
    boot, not of the daemon. `warm_owed`: whether its model is yet to be warmed, or that goes on (True from the start on); None: unknown.
    `paused_wall_seconds`: since when it is paused by hand (Unix time); None: it is not.
    `returned_at`: CLOCK_MONOTONIC seconds of the last restart that gave back what relief took; `return_blocked`: why none does any more.
    `load_seconds`: from its start until it was ready; None: it is not yet, or that was not seen. `intended_at`: CLOCK_MONOTONIC seconds
    of when its start was begun. `ending`: it was asked to end, then to be started with `next_plan` (None: as the config says);
    `relief_at`: that restart is to free memory and was decided then. `managed`: another manager started it, and ends it. `fallback`: what it ran with before it was given more, until it is ready with that.
    `chosen_context`: tokens that somebody asked for by hand when the config asked for `chosen_over`; None: nobody did.
    """

    name: str
    pid: int | None
    start_ticks: int | None
    argv: tuple[str, ...]
    context_length: int
    boot_id: str
    prompt_cache_mib: int | None = None
    started_wall_seconds: float | None = None
    relief_restarts_at: tuple[float, ...] = ()
    warm: WarmBaseline | None = None
    warm_owed: bool | None = None
    slots: int | None = None
    checkpoints: int | None = None
    cache_type: str | None = None
    load_seconds: float | None = None
    paused_wall_seconds: float | None = None
    start_word: str | None = None
    intended_at: float | None = None
    ending: bool = False
    next_plan: LaunchPlan | None = None
    relief_at: float | None = None
    returned_at: float | None = None
    return_blocked: str | None = None
    managed: bool = False
    fallback: LaunchPlan | None = None
    chosen_context: int | None = None
    chosen_over: LaunchPlan | None = None


def plan_of(record: BackendRecord) -> LaunchPlan:
    """What it was started with, or was to be."""
    return LaunchPlan(
        record.context_length, record.prompt_cache_mib, record.slots, record.checkpoints, record.cache_type
    )


def process_of(record: BackendRecord) -> ProcessIdentity | None:
    """The process that it names, whether it still runs or not, or the one that its start made if it runs; None: there is none.

    Looks at all processes where it names none. Raises OSError, and ValueError for a word that is none.
    """
    if record.pid is not None and record.start_ticks is not None:
        return ProcessIdentity(record.pid, record.start_ticks)
    return None if record.start_word is None else find_started(record.start_word)[0]


class RecordError(Exception):
    """A record that cannot be used; the text is one sentence with its path."""


def write(record: BackendRecord, directory: str = DIRECTORY) -> None:
    """Write the record in one step: a reader sees the old one or the new one. Raises OSError."""
    path = path_of(record.name, directory)
    make_private_directory(directory)
    temporary = f"{path}.new"
    # Arguments may hold API keys: for the owner only.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read(name: str, directory: str = DIRECTORY) -> BackendRecord | None:
    """The record of backend `name`, None when there is none. Raises RecordError when it is damaged, OSError otherwise."""
    path = path_of(name, directory)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(_LIMIT_BYTES)
    try:
        record = msgspec.json.decode(text, type=BackendRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} is damaged ({error}); remove it once its process has ended") from error
    if record.name != name or (record.pid is not None and record.pid <= 1):
        raise RecordError(f"{path} is the record of {record.name!r}, pid {record.pid}; remove it")
    if (record.pid is None) != (record.start_ticks is None) or (record.pid is None and record.start_word is None):
        raise RecordError(f"{path} names no process; remove it")
    return record


def remove(name: str, directory: str = DIRECTORY) -> None:
    """Forget the record; nothing happens when there is none. Raises OSError."""
    try:
        os.unlink(path_of(name, directory))
    except FileNotFoundError:
        pass


def names(directory: str = DIRECTORY) -> tuple[str, ...]:
    """Backends that have a record, sorted; () when the directory does not exist."""
    try:
        files = os.listdir(directory)
    except FileNotFoundError:
        return ()
    found = (file.removesuffix(".json") for file in files if file.endswith(".json"))
    return tuple(sorted(name for name in found if _NAME.fullmatch(name)))


def path_of(name: str, directory: str = DIRECTORY) -> str:
    """Where the record of backend `name` is. Raises ValueError for what is no name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a backend")
    return f"{directory}/{name}.json"
