"""What a service manager's backend needs to be known after a crash or a boot: one file each in services/ of the state directory.

Replaced as a whole, flushed to the disk, for root only: the words of a container may hold API keys.
"""

from __future__ import annotations

import os
import re
from typing import Generic, TypeVar

import msgspec

from moetuned.host.durable_file import make_private_directory, read_private, replace_durably

LIMIT_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}")
T = TypeVar("T", bound=msgspec.Struct)


class ServiceRecordError(OSError):
    """A record that cannot be used; the text is one sentence with its path."""


class ServiceRecordFile(Generic[T]):
    """The record of one backend at its manager, a `host.service.Keeper`; `empty` is what is read where there is none."""

    def __init__(self, directory: str, name: str, empty: T) -> None:
        """`name` is of letters, digits and -_. such as "docker-llama"; ValueError for another one."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a record")
        self._directory = os.path.join(directory, "services")
        self.path = os.path.join(self._directory, f"{name}.json")
        self._empty = empty

    def read(self) -> T:
        """The record. Raises OSError, ServiceRecordError when it is damaged."""
        text = read_private(self.path, LIMIT_BYTES)
        if not text:
            return self._empty
        try:
            return msgspec.json.decode(text, type=type(self._empty))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ServiceRecordError(
                f"{self.path} is damaged ({error}); see that no restart is half done, then remove it"
            ) from error

    def write(self, record: T) -> None:
        """Replace it. Raises OSError; what was there stays then."""
        make_private_directory(self._directory)
        replace_durably(self.path, msgspec.json.encode(record))
