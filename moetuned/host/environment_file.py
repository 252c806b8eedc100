"""The file of variables that an adopted unit reads: /run/moetuned/backends/NAME.env, one NAME=value a line (systemd.exec(5)).

Root writes it and systemd reads it, as root. What it said before is kept beside it until the change has come about, so that one that did
not can be taken back, also by the next daemon, and after another try.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping

from moetuned.host.durable_file import make_private_directory, read_private, remove_durably, replace_durably

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_VALUE = re.compile(r"-?[0-9]{1,10}|[a-z][a-z0-9_]{0,15}")
_LINE = re.compile(rf"({_VARIABLE.pattern})=({_VALUE.pattern})")
_FIRST = "# Written by moetuned: what this backend is started with. Without this file it starts as its unit says.\n"
_LIMIT_BYTES = 16 << 10
_NOTHING = b"# There was no file.\n"


def read_variables(name: str, directory: str) -> dict[str, str]:
    """What the file of backend `name` says; empty where there is none. Lines that moetuned does not write are left out. Raises OSError."""
    found = {}
    for line in read_private(_path(name, directory), _LIMIT_BYTES).decode("utf-8", "replace").split("\n"):
        match = _LINE.fullmatch(line)
        if match is not None:
            found[match[1]] = match[2]
    return found


def write_variables(name: str, values: Mapping[str, str], directory: str) -> None:
    """Make the file say `values` (whole numbers, or words such as q8_0) and nothing else, in one step, with mode 0600.

    What it said before the last change that was `settled` is on the disk before. Raises OSError; then nothing has changed. Raises
    ValueError for what is no variable or value.
    """
    for variable, value in values.items():
        if not _VARIABLE.fullmatch(variable) or not _VALUE.fullmatch(value):
            raise ValueError(f"{variable}={value} is nothing that moetuned gives a backend")
    path = _path(name, directory)
    make_private_directory(directory)
    kept = read_private(_kept(path), _LIMIT_BYTES)
    if not kept:  # else a change before was interrupted: what it found is what to go back to
        replace_durably(_kept(path), read_private(path, _LIMIT_BYTES) or _NOTHING)
    replace_durably(
        path, (_FIRST + "".join(f"{variable}={values[variable]}\n" for variable in sorted(values))).encode()
    )


def settled(name: str, directory: str) -> None:
    """The change came about: what was before is not needed any more. Raises OSError."""
    remove_durably(_kept(_path(name, directory)))


def age_seconds(name: str, directory: str) -> float | None:
    """How long ago the file was written, by the wall clock; None where there is none. Raises OSError."""
    try:
        return time.time() - os.stat(_path(name, directory)).st_mtime
    except FileNotFoundError:
        return None


def take_back(name: str, directory: str) -> bool:
    """Make the file what it was before the change that is not `settled`; False where nothing is kept of that. Raises OSError."""
    path = _path(name, directory)
    before = read_private(_kept(path), _LIMIT_BYTES)
    if not before:
        return False
    if before == _NOTHING:
        remove_durably(path)
    else:
        replace_durably(path, before)
    remove_durably(_kept(path))
    return True


def forget(name: str, directory: str) -> None:
    """Remove the file and what is kept of it; nothing happens where there is none. Raises OSError."""
    path = _path(name, directory)
    for each in (path, _kept(path)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            remove_durably(each)


def _kept(path: str) -> str:
    return f"{path}.before"


def _path(name: str, directory: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a backend")
    return f"{directory}/{name}.env"
