"""Reading and writing a kernel setting: a file, a pair of files of which one is in force, or a property of a systemd unit."""

from __future__ import annotations

import errno
import time
from collections.abc import Collection

from moetuned.host import service_manager
from moetuned.host.fs import HostFS, RealFS
from moetuned.parse.mounts import is_read_only
from moetuned.parse.tunable_text import parse_choices, parse_value, text_of
from moetuned.schema.tunable import Cell, Codec, Place, Reading

_LIMIT_BYTES = 4096
_REALISE_TRIES, _REALISE_SECONDS = 100, 0.02
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


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
    """Give the kernel a value, by way of systemd where the file is a unit's. Raises OSError as the kernel (or systemd) answers.

    A ratio of 0 replaces its twin only by way of another value: the kernel takes 0 over 0 for no change and keeps the
    twin (dirty_ratio_handler in mm/page-writeback.c).
    """
    if place.unit is not None and place.unit_property is not None:
        before = read_tunable(fs, place).cell
        _set_property(fs, place.unit, place.unit_property, cell.value)
        # systemd writes the file a moment after it has answered.
        for _ in range(_REALISE_TRIES):
            if read_tunable(fs, place).cell not in (None, before) or before == cell:
                return
            time.sleep(_REALISE_SECONDS)
        return
    if place.twin_path is not None and cell == Cell(place.path, "0"):
        fs.write_text(cell.path, "1")
    fs.write_text(cell.path, text_of(place.codec, cell.value))


def _set_property(fs: HostFS, unit: str, name: str, value: str) -> None:
    """Only for the machine that this runs on: a tree of another one's files may name units of the same name."""
    if not _is_this_machine(fs):
        raise OSError(errno.EOPNOTSUPP, f"{unit} is a unit of another machine than this one")
    try:
        service_manager.set_property(unit, name, value)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error


def _is_this_machine(fs: HostFS) -> bool:
    try:
        return fs.read_text(_BOOT_ID, 64) == RealFS().read_text(_BOOT_ID, 64)
    except OSError:
        return False


def unset_of_stopped_unit(fs: HostFS, place: Place, ours: Collection[str], original: str) -> None:
    """Have systemd start a unit whose cgroup is gone with `original` again, where it would set one of `ours`: it keeps what it was told last.

    Raises OSError with what systemd said; it may start the unit with ours then.
    """
    if place.unit is None or place.unit_property is None or not _is_this_machine(fs):
        return
    if service_manager.property_of(place.unit, place.unit_property) in ours:
        _set_property(fs, place.unit, place.unit_property, original)


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
