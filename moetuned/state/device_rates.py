"""What each device was seen to give at its best, kept over restarts: one file in /var/lib/moetuned.

It is replaced as a whole and flushed to the disk. What is damaged or of another version is as if nothing were known.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import msgspec

from moetuned.decide.device_pace import MOST_PACES
from moetuned.host.durable_file import make_private_directory, read_private, remove_durably, write_durably
from moetuned.schema.device import Pace

FILE_NAME = "device_rates.json"
MOST_DEVICES = 64
LIMIT_BYTES = 1 << 20
_VERSION = 1
_LONGEST_NAME = 2048


class _Kept(msgspec.Struct, frozen=True):
    version: int
    devices: dict[str, tuple[Pace, ...]]


def load(directory: str) -> dict[str, tuple[Pace, ...]]:
    """Paces by identity of the devices; {} when nothing usable is kept. Never raises."""
    try:
        kept = msgspec.json.decode(read_private(os.path.join(directory, FILE_NAME), LIMIT_BYTES), type=_Kept)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}
    if kept.version != _VERSION:
        return {}
    devices = ((name, tuple(filter(_is_sound, paces))[:MOST_PACES]) for name, paces in kept.devices.items())
    return {name: paces for name, paces in devices if paces and len(name) <= _LONGEST_NAME}


def save(directory: str, rates: Mapping[str, tuple[Pace, ...]]) -> None:
    """Keep them, of more than 64 devices those that were added last. Raises OSError; what was kept stays then."""
    newest = dict(list(rates.items())[-MOST_DEVICES:])
    make_private_directory(directory)
    path = os.path.join(directory, FILE_NAME)
    temporary = f"{path}.{os.getpid()}.new"
    try:
        write_durably(temporary, msgspec.json.encode(_Kept(_VERSION, newest)), 0)
        remove_durably(temporary, keep_as=path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def _is_sound(pace: Pace) -> bool:
    numbers = (pace.request_bytes, pace.queue_length, pace.bytes_per_second)
    return all(math.isfinite(number) and 0 <= number < 1e15 for number in numbers)
