"""A machine with files, swaps and zram devices that answers as the kernel does, and a process on it that can die at any step.

Inode numbers and device numbers are given again as soon as they are free, as ext4 and the kernel do. `maker` is the truth that
tests compare with: "moetuned" or "other".
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from moetuned.host.swap_devices import Progress
from moetuned.schema.swap import ActiveSwap, FileLook, SwapFacts, SwapFileFacts, SwapOffRoom, ZramLook
from moetuned.state import swap_record

GIB = 1 << 30
MODES = ("before", "after")


class Crash(BaseException):
    """The process is gone: nothing it would do afterwards happens."""


class Fuse:
    """Counts the steps at which a process can die and dies at one of them, before or after it takes effect."""

    def __init__(self, at: int | None = None, mode: str = "before") -> None:
        self.at, self.mode, self.count, self.dead = at, mode, 0, False

    def step(self, run: Callable[[], Any]) -> Any:
        if self.dead:
            raise Crash
        self.count += 1
        if self.count != self.at:
            return run()
        self.dead = True
        if self.mode == "after":
            run()
        raise Crash


@dataclass
class FakeFile:
    inode: int
    maker: str
    size_bytes: int = 0
    mode: int = 0o600
    owner: int = 0
    regular: bool = True
    uuid: str | None = None
    blocks: bool = False
    copy_on_write: bool = True
    on: bool = False
    used_bytes: int = 0
    priority: int = -2


@dataclass
class FakeZram:
    sequence: int
    maker: str
    size_bytes: int = 0
    uuid: str | None = None
    blank: bool = True
    on: bool = False
    used_bytes: int = 0
    priority: int = -2


@dataclass
class FakeMachine:
    """What outlives a process. `disk` are the state directory's files; `zram` None: the module is not loaded."""

    files: dict[tuple[str, str], FakeFile] = field(default_factory=dict)
    zram: dict[int, FakeZram] | None = field(default_factory=dict)
    zram_built_in: bool = True
    zram_exists: bool = True
    disk: dict[str, bytes] = field(default_factory=dict)
    disk_full: bool = False
    boot: int = 1
    data_mounted: bool = True
    filesystem: str = "ext4"
    rotational: bool | None = False
    memory_bytes: int = 32 * GIB
    available_bytes: int = 20 * GIB
    free_bytes: int = 200 * GIB
    takes_swap: bool = True
    swaps_off_elsewhere: bool = False
    tight: tuple[str, ...] = ()
    sequences: Iterator[int] = field(default_factory=lambda: itertools.count(100))
    uuids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def key(self, path: str) -> tuple[str, str]:
        return self.mount(path), path

    def mount(self, path: str) -> str:
        return "/data" if path.startswith("/data/") and self.data_mounted else "/"

    def at(self, path: str) -> FakeFile | None:
        return self.files.get(self.key(path))

    def free_inode(self) -> int:
        taken = {file.inode for file in self.files.values()}
        return next(number for number in itertools.count(11) if number not in taken)

    def put(self, path: str, maker: str, **values: Any) -> FakeFile:
        assert self.at(path) is None
        made = self.files[self.key(path)] = FakeFile(self.free_inode(), maker, **values)
        return made

    def add_zram(self, maker: str) -> int:
        assert self.zram is not None
        number = next(number for number in itertools.count() if number not in self.zram)
        self.zram[number] = FakeZram(next(self.sequences), maker)
        return number

    def new_uuid(self) -> str:
        return f"{next(self.uuids):08x}-0000-4000-8000-000000000000"

    def reboot(self) -> None:
        self.boot += 1
        for file in self.files.values():
            file.on, file.used_bytes = False, 0
        self.zram = {} if self.zram_built_in else None

    def made_by(self, maker: str) -> list[str]:
        return [
            *(path for (_, path), file in self.files.items() if file.maker == maker),
            *(f"zram{number}" for number, device in (self.zram or {}).items() if device.maker == maker),
        ]


def refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


class FakeSwapHost:
    """A process's view of the machine: every method that changes something is one step at which it can die."""

    def __init__(self, machine: FakeMachine, fuse: Fuse | None = None) -> None:
        self.machine = machine
        self.fuse = fuse or Fuse()
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}

    def _do(self, name: str, run: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if name in self.fails:
            refuse(self.fails[name])
        return self.fuse.step(run)

    def facts(self, path: str | None, *, look_for_zram: bool = True) -> SwapFacts:
        machine = self.machine
        rows = [
            ActiveSwap(name, "file", file.size_bytes - 4096, file.used_bytes, file.priority)
            for (_, name), file in machine.files.items()
            if file.on
        ]
        rows += [
            ActiveSwap(f"/dev/zram{number}", "partition", device.size_bytes - 4096, device.used_bytes, device.priority)
            for number, device in (machine.zram or {}).items()
            if device.on
        ]
        place = None
        if path is not None:
            file = machine.at(path)
            place = SwapFileFacts(
                filesystem=machine.filesystem,
                disks=("nvme0n1",),
                rotational=machine.rotational,
                free_bytes=machine.free_bytes,
                total_bytes=2 * machine.free_bytes,
                taken=file is not None,
                active=file is not None and file.on,
            )
        return SwapFacts(
            memory_bytes=machine.memory_bytes,
            active=tuple(rows),
            zram_refusal=None if machine.zram_exists else "this kernel has no zram",
            file=place,
        )

    def boot_id(self) -> str:
        return f"boot-{self.machine.boot}"

    def new_uuid(self) -> str:
        return self.machine.new_uuid()

    def mount_point(self, path: str) -> str | None:
        return self.machine.mount(path)

    def look_at_file(self, path: str) -> FileLook | None:
        file = self.machine.at(path)
        if file is None:
            return None
        return FileLook(
            inode=file.inode,
            size_bytes=file.size_bytes,
            mode=file.mode,
            owner=file.owner,
            regular=file.regular,
            uuid=file.uuid,
        )

    def create_file(self, path: str) -> FileLook:
        def run() -> None:
            if self.machine.at(path) is not None:
                refuse(errno.EEXIST)
            self.machine.put(path, "moetuned")

        self._do("create_file", run)
        look = self.look_at_file(path)
        assert look is not None
        return look

    def fill_file(self, path: str, size_bytes: int, *, copy_on_write: bool) -> None:
        def run() -> None:
            file = self._file(path)
            file.size_bytes, file.blocks, file.copy_on_write = size_bytes, True, not copy_on_write

        self._do("fill_file", run)

    def flush_file(self, path: str) -> None:
        self._do("flush_file", lambda: self._file(path))

    def move_into_place(self, temporary: str, path: str) -> None:
        def run() -> None:
            if self.machine.at(path) is not None:
                refuse(errno.EEXIST)
            self._file(temporary)
            self.machine.files[self.machine.key(path)] = self.machine.files.pop(self.machine.key(temporary))

        self._do("move_into_place", run)

    def remove_file(self, path: str) -> None:
        def run() -> None:
            file = self.machine.at(path)
            if file is not None and file.on:
                refuse(errno.EPERM)
            self.machine.files.pop(self.machine.key(path), None)

        self._do("remove_file", run)

    def is_swapped_on(self, path: str) -> bool:
        return self._file(path).on

    def make_signature(self, path: str, uuid: str) -> None:
        def run() -> None:
            target = self._target(path)
            target.uuid = uuid
            if isinstance(target, FakeZram):
                target.blank = False

        self._do("make_signature", run)

    def swap_on(self, path: str, priority: int | None) -> None:
        def run() -> None:
            target = self._target(path)
            if target.on:
                refuse(errno.EBUSY)
            holes = isinstance(target, FakeFile) and (not target.blocks or self._has_copy_on_write(target))
            if target.uuid is None or holes or not self.machine.takes_swap:
                refuse(errno.EINVAL)
            target.on, target.priority = True, -2 if priority is None else priority

        self._do("swap_on", run)

    def swap_off_slowly(self, path: str, progress: Progress | None, patience_seconds: float | None) -> None:
        def run() -> None:
            target = self._target(path)
            if not target.on:
                refuse(errno.EINVAL)
            if self.machine.swaps_off_elsewhere:
                refuse(errno.EBUSY)
            assert target.used_bytes < self.machine.available_bytes, "swapped off what does not fit: the kernel kills"
            assert not (target.used_bytes and self.machine.tight), (
                "swapped off what does not fit a cgroup: the kernel kills"
            )
            if progress is not None:
                progress(target.used_bytes)
            target.on, target.used_bytes = False, 0

        self._do("swap_off", run)

    def wait_for_swap_off(self, path: str, patience_seconds: float | None) -> bool:
        return not self.machine.swaps_off_elsewhere

    def room(self, path: str) -> SwapOffRoom:
        target = self._target(path)
        used = target.used_bytes if target.on else 0
        return SwapOffRoom(used, self.machine.available_bytes, self.machine.memory_bytes, self.machine.tight)

    def zram_loaded(self) -> bool:
        return self.machine.zram is not None

    def load_zram(self) -> None:
        def run() -> None:
            if not self.machine.zram_exists:
                refuse(errno.ENOENT)
            self.machine.zram = {}

        self._do("load_zram", run)

    def unload_zram(self) -> None:
        def run() -> None:
            if self.machine.zram_built_in or self.machine.zram:
                refuse(errno.EBUSY)
            self.machine.zram = None

        self._do("unload_zram", run)

    def zram_numbers(self) -> tuple[int, ...]:
        return tuple(sorted(self.machine.zram or ()))

    def add_zram(self) -> int:
        return int(self._do("add_zram", lambda: self.machine.add_zram("moetuned")))

    def look_at_zram(self, number: int) -> ZramLook | None:
        device = (self.machine.zram or {}).get(number)
        if device is None:
            return None
        return ZramLook(number, device.sequence, device.size_bytes, device.uuid, device.blank)

    def set_up_zram(self, number: int, size_bytes: int) -> None:
        def run() -> None:
            device = self._zram(number)
            if device.size_bytes:
                refuse(errno.EBUSY)
            device.size_bytes = size_bytes

        self._do("set_up_zram", run)

    def remove_zram(self, number: int) -> None:
        def run() -> None:
            device = (self.machine.zram or {}).get(number)
            if device is None:
                return
            if device.on:
                refuse(errno.EBUSY)
            assert self.machine.zram is not None
            del self.machine.zram[number]

        self._do("remove_zram", run)

    def _has_copy_on_write(self, file: FakeFile) -> bool:
        return self.machine.filesystem == "btrfs" and file.copy_on_write

    def _file(self, path: str) -> FakeFile:
        file = self.machine.at(path)
        if file is None:
            refuse(errno.ENOENT)
        assert file is not None
        return file

    def _zram(self, number: int) -> FakeZram:
        device = (self.machine.zram or {}).get(number)
        if device is None:
            refuse(errno.ENODEV)
        assert device is not None
        return device

    def _target(self, path: str) -> FakeFile | FakeZram:
        return self._zram(int(path.removeprefix("/dev/zram"))) if path.startswith("/dev/zram") else self._file(path)


@contextmanager
def state_disk(machine: FakeMachine, fuse: Fuse) -> Iterator[None]:
    """The state directory of the fake machine instead of the real one, with a step in every change."""

    def write(path: str, data: bytes, offset: int) -> None:
        assert offset == 0
        if machine.disk_full:
            refuse(errno.ENOSPC)

        def run() -> None:
            machine.disk[path] = data

        fuse.step(run)

    def remove(path: str, keep_as: str | None = None) -> None:
        def run() -> None:
            data = machine.disk.pop(path, None)
            if keep_as is not None and data is not None:
                machine.disk[keep_as] = data

        fuse.step(run)

    def read(path: str, limit_bytes: int) -> bytes:
        return machine.disk.get(path, b"")

    with (
        patch.object(swap_record, "write_durably", write),
        patch.object(swap_record, "remove_durably", remove),
        patch.object(swap_record, "read_private", read),
        patch.object(swap_record.os, "unlink", lambda path: machine.disk.pop(path, None)),
    ):
        yield
