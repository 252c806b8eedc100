"""Reading and writing a kernel setting, a pair of files of which one is in force included."""

from __future__ import annotations

import errno

from moetuned.host.fs import HostFS
from moetuned.parse.mounts import is_read_only
from moetuned.parse.tunable_text import parse_choices, parse_value
from moetuned.schema.tunable import Cell, Codec, Place, Reading

_LIMIT_BYTES = 4096


def read_tunable(fs: HostFS, place: Place) -> Reading:
    """The value in force at `place`. Never raises: what cannot be read or understood is a Reading without a cell.

    Of a pair the twin is in force while it is not 0 (mm/page-writeback.c: setting one zeroes the other).
    """
    try:
        text = fs.read_text(place.path, _LIMIT_BYTES)
        cell = Cell(place.path, parse_value(place.codec, text))
        if place.twin_path is not None and fs.exists(place.twin_path):
            twin = parse_value(place.codec, fs.read_text(place.twin_path, _LIMIT_BYTES))
            cell = cell if twin == "0" else Cell(place.twin_path, twin)
    except OSError as error:
        return Reading(None, unknown=describe_error(error, place.path))
    except ValueError as error:
        return Reading(None, unknown=f"{place.path}: {error}")
    choices = parse_choices(text) if place.codec is Codec.CHOICE else ()
    return Reading(cell, choices)


def read_for_plan(fs: HostFS, place: Place) -> Reading:
    """As `read_tunable`, and whether the place lies on a read-only mount."""
    reading = read_tunable(fs, place)
    return Reading(reading.cell, reading.choices, reading.unknown, _on_read_only_mount(fs, place.path))


def write_tunable(fs: HostFS, place: Place, cell: Cell) -> None:
    """Give the kernel a value. Raises OSError as the kernel answers.

    A ratio of 0 replaces its twin only by way of another value: the kernel takes 0 over 0 for no change and keeps the
    twin (dirty_ratio_handler in mm/page-writeback.c).
    """
    if place.twin_path is not None and cell == Cell(place.path, "0"):
        fs.write_text(cell.path, "1")
    fs.write_text(cell.path, cell.value)


def describe_error(error: OSError, path: str) -> str:
    """One sentence for what the kernel answered about `path`."""
    if error.errno == errno.ENOENT:
        return f"this kernel has no {path}"
    if error.errno == errno.EROFS:
        return f"{path} is read-only here (a container?)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{path} may not be changed from here (not root, or a container)"
    if error.errno == errno.EINVAL:
        return f"the kernel does not take this value for {path}"
    return f"{path}: {error.strerror or error}"


def _on_read_only_mount(fs: HostFS, path: str) -> bool:
    try:
        return is_read_only(fs.read_text("/proc/self/mounts"), path)
    except OSError:
        return False
