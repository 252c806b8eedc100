"""Everything that making and removing swap does to a machine, as one object, so that tests can put a fake kernel in its place."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Mapping
from typing import Protocol

from moetuned.decide.swap_fit import why_not_off
from moetuned.host import swap_devices, swap_facts, swap_files, swap_room, swap_signature, zram_devices
from moetuned.host.active_swaps import read_swaps
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.swap_devices import Progress
from moetuned.host.swap_facts import with_refused
from moetuned.host.swap_signature import SwapError
from moetuned.parse.swaps import zram_number
from moetuned.schema.capability import Action
from moetuned.schema.swap import FileLook, SwapFacts, SwapOffRoom, ZramLook

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_ZRAM = "/dev/zram"


class SwapHost(Protocol):
    """What may be done about swap. Every method may raise OSError as the kernel answers, unless it says otherwise."""

    refused: Mapping[Action, str]
    """What the self-test says that cannot be done here; `facts` tells of it."""

    def facts(self, path: str | None, *, look_for_zram: bool = True) -> SwapFacts:
        """The machine, for a plan with a swap file at `path` (None: without one). Never raises."""
        ...

    def boot_id(self) -> str:
        """The kernel's id of this boot."""
        ...

    def new_uuid(self) -> str:
        """A UUID that nobody else has. Never raises."""
        ...

    def mount_point(self, path: str) -> str | None:
        """Where the file system of `path` is mounted, whether it exists or not. Never raises."""
        ...

    def look_at_file(self, path: str) -> FileLook | None:
        """What is at `path`; None when nothing is."""
        ...

    def create_file(self, path: str) -> FileLook:
        """Make an empty private file where nothing is."""
        ...

    def fill_file(self, path: str, size_bytes: int, *, copy_on_write: bool) -> None:
        """Give a new file all its blocks, without copy on write."""
        ...

    def flush_file(self, path: str) -> None:
        """Flush the file's content to the disk."""
        ...

    def move_into_place(self, temporary: str, path: str) -> None:
        """Rename where nothing is."""
        ...

    def remove_file(self, path: str) -> None:
        """Remove a file; nothing there is no error."""
        ...

    def is_swapped_on(self, path: str) -> bool:
        """Whether the file of ours at `path` is in use as swap."""
        ...

    def make_signature(self, path: str, uuid: str) -> None:
        """Write a swap signature (mkswap)."""
        ...

    def swap_on(self, path: str, priority: int | None) -> None:
        """swapon(2)."""
        ...

    def swap_off_slowly(self, path: str, progress: Progress | None, patience_seconds: float | None) -> None:
        """swapoff(2); may take minutes, and ends (ENOMEM) when memory becomes too short for the rest.

        EINVAL: it is not on. EBUSY: somebody else was still swapping it off after `patience_seconds`. It may be off after any error.
        """
        ...

    def wait_for_swap_off(self, path: str, patience_seconds: float | None) -> bool:
        """Wait until no earlier `swap_off_slowly` of any process is at it any more; False: one still is after `patience_seconds`."""
        ...

    def room(self, path: str) -> SwapOffRoom:
        """What swapping off would need. Never raises."""
        ...

    def zram_loaded(self) -> bool:
        """Whether the kernel has zram now. Never raises."""
        ...

    def load_zram(self) -> None:
        """Load the module, with no device."""
        ...

    def unload_zram(self) -> None:
        """Remove the module."""
        ...

    def zram_numbers(self) -> tuple[int, ...]:
        """The devices there are."""
        ...

    def add_zram(self) -> int:
        """Make one more."""
        ...

    def look_at_zram(self, number: int) -> ZramLook | None:
        """A device as it is; None when there is none of this number."""
        ...

    def set_up_zram(self, number: int, size_bytes: int) -> None:
        """Give a device its size."""
        ...

    def remove_zram(self, number: int) -> None:
        """Free and remove a device; none there is no error."""
        ...


class RealSwapHost:
    """The real kernel."""

    def __init__(self, state_directory: str, fs: HostFS | None = None) -> None:
        self._state_directory = state_directory
        self._fs = fs or RealFS()
        self.refused: Mapping[Action, str] = {}
        """What the self-test says that cannot be done here."""

    def facts(self, path: str | None, *, look_for_zram: bool = True) -> SwapFacts:
        """See `SwapHost.facts`."""
        found = swap_facts.read_facts(
            path, state_directory=self._state_directory, look_for_zram=look_for_zram, fs=self._fs
        )
        return with_refused(found, self.refused)

    def boot_id(self) -> str:
        """See `SwapHost.boot_id`."""
        return self._fs.read_text(_BOOT_ID, 64).strip()

    def new_uuid(self) -> str:
        """See `SwapHost.new_uuid`."""
        return str(uuid.uuid4())

    def mount_point(self, path: str) -> str | None:
        """See `SwapHost.mount_point`."""
        return swap_facts.mount_point(path, self._fs)

    def look_at_file(self, path: str) -> FileLook | None:
        """See `SwapHost.look_at_file`."""
        return swap_files.look_at_file(path)

    def create_file(self, path: str) -> FileLook:
        """See `SwapHost.create_file`."""
        return swap_files.create_file(path)

    def fill_file(self, path: str, size_bytes: int, *, copy_on_write: bool) -> None:
        """See `SwapHost.fill_file`."""
        swap_files.fill_file(path, size_bytes, copy_on_write=copy_on_write)

    def flush_file(self, path: str) -> None:
        """See `SwapHost.flush_file`."""
        swap_files.flush_file(path)

    def move_into_place(self, temporary: str, path: str) -> None:
        """See `SwapHost.move_into_place`."""
        swap_files.move_into_place(temporary, path)

    def remove_file(self, path: str) -> None:
        """See `SwapHost.remove_file`."""
        swap_files.remove_file(path)

    def is_swapped_on(self, path: str) -> bool:
        """See `SwapHost.is_swapped_on`."""
        return swap_files.is_swapped_on(path)

    def make_signature(self, path: str, uuid: str) -> None:
        """See `SwapHost.make_signature`."""
        swap_signature.make_signature(path, uuid)

    def swap_on(self, path: str, priority: int | None) -> None:
        """See `SwapHost.swap_on`."""
        swap_devices.swap_on(path, priority)

    def swap_off_slowly(self, path: str, progress: Progress | None, patience_seconds: float | None) -> None:
        """See `SwapHost.swap_off_slowly`."""
        swap_devices.swap_off_slowly(
            path, lambda: self._left_bytes(path), progress, patience_seconds, lambda: self._is_on(path)
        )

    def wait_for_swap_off(self, path: str, patience_seconds: float | None) -> bool:
        """See `SwapHost.wait_for_swap_off`."""
        return swap_devices.wait_for_swap_off(path, patience_seconds)

    def _is_on(self, path: str) -> bool:
        if not path.startswith(_ZRAM):
            return swap_files.is_swapped_on(path)
        numbers = (zram_number(swap) for swap in read_swaps(self._fs) or ())
        return path in {zram_devices.zram_path(number) for number in numbers if number is not None}

    def _left_bytes(self, path: str) -> int | None:
        """What is still to be read back. Raises SwapError when it no longer fits: others take memory meanwhile."""
        room = self.room(path)
        if why_not_off(path, room) is not None:
            raise SwapError(errno.ENOMEM, "memory became too short to swap off", path)
        return room.used_bytes

    def room(self, path: str) -> SwapOffRoom:
        """See `SwapHost.room`."""
        return swap_room.read_room(path, self._fs)

    def zram_loaded(self) -> bool:
        """See `SwapHost.zram_loaded`."""
        return zram_devices.zram_loaded(self._fs)

    def load_zram(self) -> None:
        """See `SwapHost.load_zram`."""
        zram_devices.load_zram()

    def unload_zram(self) -> None:
        """See `SwapHost.unload_zram`."""
        zram_devices.unload_zram()

    def zram_numbers(self) -> tuple[int, ...]:
        """See `SwapHost.zram_numbers`."""
        return zram_devices.zram_numbers(self._fs)

    def add_zram(self) -> int:
        """See `SwapHost.add_zram`."""
        return zram_devices.add_zram(self._fs)

    def look_at_zram(self, number: int) -> ZramLook | None:
        """See `SwapHost.look_at_zram`."""
        return zram_devices.look_at_zram(number, self._fs)

    def set_up_zram(self, number: int, size_bytes: int) -> None:
        """See `SwapHost.set_up_zram`."""
        zram_devices.set_up_zram(number, size_bytes, self._fs)

    def remove_zram(self, number: int) -> None:
        """See `SwapHost.remove_zram`."""
        zram_devices.remove_zram(number, self._fs)
