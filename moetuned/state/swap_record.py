"""Record of the swap that moetuned made: on the disk before each thing is done, so that it can be undone after any crash.

One small file, replaced as a whole. It outlives a reboot, as a swap file does. What identifies a thing of ours is chosen or
recorded before anything depends on it: a UUID in the swap signature, the inode number of a file, the kernel's sequence number of a device.
The holder of the directory's lock (`state.undo_journal.open_journal`) writes it; anybody who can read it may look.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from enum import StrEnum

import msgspec

from moetuned.host.durable_file import read_private, remove_durably, write_durably
from moetuned.schema.swap import SwapKind

FILE_NAME = "swap.json"
_LIMIT_BYTES = 1 << 16
_VERSION = 1
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class SwapRecordError(Exception):
    """The record cannot be read or written; the text is one sentence with its path."""


class SwapRecordHiddenError(SwapRecordError):
    """The record is not for this user to read."""


class Stage(StrEnum):
    """How far it got: it may or may not be there; it is there, but not ready; it was made whole; it is being taken away."""

    MAKING = "making"
    ADDED = "added"
    MADE = "made"
    REMOVING = "removing"


class HeldFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A swap file. It is made under `temporary` and then renamed.

    `on_boot_id`: the boot in which moetuned last saw it on. `kept`: why it could not be taken away, for people. `asked`: what the
    config asked for when it was made or kept.
    """

    path: str
    uuid: str
    size_bytes: int
    stage: Stage
    boot_id: str
    mount_point: str | None = None
    priority: int | None = None
    inode: int | None = None
    on_boot_id: str | None = None
    kept: str = ""
    asked: str = ""

    @property
    def temporary(self) -> str:
        """A name in the same directory that nobody else uses."""
        directory, _, name = self.path.rpartition("/")
        return f"{directory}/.{name}.moetuned-{self.uuid}"


class HeldZram(msgspec.Struct, frozen=True, omit_defaults=True):
    """A zram device of the boot `boot_id`, gone with it. `existed` are the numbers there were before.

    `sequence` is the kernel's diskseq of the device, never given twice in a boot; `on`: moetuned has seen it on.
    """

    boot_id: str
    uuid: str
    size_bytes: int
    stage: Stage
    existed: tuple[int, ...] = ()
    priority: int | None = None
    number: int | None = None
    sequence: int | None = None
    on: bool = False
    kept: str = ""
    asked: str = ""

    @property
    def expected(self) -> int:
        """The number the kernel gives to a new device: the lowest that is free (idr_alloc in drivers/block/zram)."""
        return next(number for number in range(len(self.existed) + 1) if number not in self.existed)


class YieldedSwap(msgspec.Struct, frozen=True, omit_defaults=True):
    """A swap of ours that somebody took away: theirs to decide about for the rest of the boot `boot_id`.

    `asked`: what the config asked for then; `why`: what they did, for people.
    """

    boot_id: str
    asked: str
    why: str


class SwapRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is ours. `module_boot_id`: the boot in which moetuned loaded the zram module.

    A swap that was yielded may still be there and ours to remove, swapped off by somebody.
    """

    version: int = _VERSION
    file: HeldFile | None = None
    zram: HeldZram | None = None
    module_boot_id: str | None = None
    file_yielded: YieldedSwap | None = None
    zram_yielded: YieldedSwap | None = None


_NOTHING = SwapRecord()


class SwapStore:
    """The record and its place on the disk. Every change is on the disk when the method returns, else SwapRecordError."""

    def __init__(self, path: str, record: SwapRecord) -> None:
        """Use `open_store`."""
        self.path = path
        self.unsaved: SwapRecordError | None = None
        """Why the record on the disk still names what is gone; None when it is as in memory."""
        self._record = record

    @property
    def record(self) -> SwapRecord:
        """What is ours."""
        return self._record

    def hold_file(self, held: HeldFile) -> HeldFile:
        """Record the swap file as it is or is about to be."""
        self._save(msgspec.structs.replace(self._record, file=held))
        return held

    def hold_zram(self, held: HeldZram) -> HeldZram:
        """Record the zram device as it is or is about to be."""
        self._save(msgspec.structs.replace(self._record, zram=held))
        return held

    def hold_module(self, boot_id: str) -> None:
        """Record that the zram module is about to be loaded."""
        self._save(msgspec.structs.replace(self._record, module_boot_id=boot_id))

    def yielded(self, kind: SwapKind) -> YieldedSwap | None:
        """What somebody did to a swap of ours, if it is theirs to decide about."""
        return self._record.file_yielded if kind is SwapKind.FILE else self._record.zram_yielded

    def yield_to(self, kind: SwapKind, what: YieldedSwap | None) -> None:
        """Record that a swap is somebody's to decide about, or (None) no longer. Without room on the disk in memory only."""
        if kind is SwapKind.FILE:
            self._forget(msgspec.structs.replace(self._record, file_yielded=what))
        else:
            self._forget(msgspec.structs.replace(self._record, zram_yielded=what))

    def forget_file(self) -> None:
        """The swap file is gone or no longer ours. Without room on the disk it is forgotten in memory only: that is found out again."""
        self._forget(msgspec.structs.replace(self._record, file=None))

    def forget_zram(self) -> None:
        """The zram device is gone or no longer ours."""
        self._forget(msgspec.structs.replace(self._record, zram=None))

    def forget_module(self) -> None:
        """The module is no longer loaded by us, or not ours to remove."""
        self._forget(msgspec.structs.replace(self._record, module_boot_id=None))

    def _forget(self, record: SwapRecord) -> None:
        try:
            self._save(record)
        except SwapRecordError as error:
            self._record, self.unsaved = record, error

    def _save(self, record: SwapRecord) -> None:
        if record == self._record:
            return
        temporary = _temporary(self.path)
        try:
            if record == _NOTHING:
                remove_durably(self.path)
            else:
                write_durably(temporary, msgspec.json.encode(record), 0)
                remove_durably(temporary, keep_as=self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise SwapRecordError(
                f"the record {self.path} cannot be written ({error.strerror or error}), so no swap is changed"
            ) from error
        self._record, self.unsaved = record, None


def exists(directory: str) -> bool:
    """Whether there is a record in the state directory, or the rest of one that was being written: something to clear up."""
    path = os.path.join(directory, FILE_NAME)
    return os.path.lexists(path) or os.path.lexists(_temporary(path))


def open_store(directory: str, *, held: bool = False) -> SwapStore:
    """The record in the state directory, empty when there is none. `held`: this process holds the directory and may change it.

    Raises SwapRecordError, SwapRecordHiddenError where only root may read it.
    """
    path = os.path.join(directory, FILE_NAME)
    if held:  # the rest of a process that was killed while it wrote: what it was about to do had not been done
        with contextlib.suppress(OSError):
            os.unlink(_temporary(path))
    try:
        content = read_private(path, _LIMIT_BYTES)
    except OSError as error:
        kind = SwapRecordHiddenError if error.errno == errno.EACCES else SwapRecordError
        raise kind(f"{path} cannot be read: {error.strerror or error}") from error
    if not content:
        return SwapStore(path, _NOTHING)
    try:
        record = msgspec.json.decode(content, type=SwapRecord)
        _check(record)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SwapRecordError(
            f"{path} is damaged ({error}): swap off and remove what it names by hand, then remove it"
        ) from error
    return SwapStore(path, record)


def _temporary(path: str) -> str:
    return f"{path}.new"


def _check(record: SwapRecord) -> None:
    """Nothing but swap of ours may ever be removed, whatever the file says. Raises ValueError."""
    if record.version != _VERSION:
        raise ValueError("it is of another version of moetuned")
    for held in (record.file, record.zram):
        if held is not None and (_UUID.fullmatch(held.uuid) is None or held.size_bytes <= 0):
            raise ValueError("a UUID or a size is none")
    file, zram = record.file, record.zram
    if file is not None:
        parts = file.path.split("/")
        if parts[0] or len(parts) < 2 or not {"", ".", ".."}.isdisjoint(parts[1:]) or "\0" in file.path:
            raise ValueError(f"{file.path!r} is no absolute path of a file")
        if file.stage in (Stage.MADE, Stage.REMOVING) and file.inode is None:
            raise ValueError("a file that was made has no inode number")
    if zram is not None:
        if zram.number is not None and zram.number < 0:
            raise ValueError(f"{zram.number} is no number of a device")
        if (zram.stage is Stage.MAKING) != (zram.number is None) or (zram.number is None) != (zram.sequence is None):
            raise ValueError("a device that was made has no number")
