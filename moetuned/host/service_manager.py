"""Asks systemd to change a property of a unit that runs, until the next boot (systemctl(1), set-property --runtime).

A limit of a unit's cgroup is systemd's: what is written past it stands only until systemd realises the unit again. The
program is started without a shell, with an absolute path and an environment of its own.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess

_SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BOOTED = "/run/systemd/system"
_SECONDS = 20.0
_SAID_CHARACTERS = 300
# systemd.unit(5): at most 255 of these; what else a name has is written as \x2d. Not a hyphen first: that would be an option.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,200}\.(service|scope|slice)")
_PROPERTIES = frozenset({"IOWeight", "MemoryLow"})
_VALUE = re.compile(r"[0-9]{1,20}|max")


def is_booted() -> bool:
    """Whether systemd is this machine's service manager (sd_booted(3))."""
    return os.path.isdir(_BOOTED)


def is_unit(name: str) -> bool:
    """Whether `name` can be that of a unit which has a cgroup."""
    return _UNIT.fullmatch(name) is not None


def set_property(unit: str, name: str, value: str) -> None:
    """Give `unit` the property `name` (MemoryLow, IOWeight), a whole number or `max`, until the next boot.

    Blocks for at most 20 s. Raises OSError with what systemctl said, ValueError for what is no unit, property or value.
    """
    if not is_unit(unit):
        raise ValueError(f"{unit!r} is no unit that has a cgroup")
    if name not in _PROPERTIES or _VALUE.fullmatch(value) is None:
        raise ValueError(f"{name}={value} is nothing that moetuned sets of a unit")
    if not is_booted():
        raise OSError(errno.EOPNOTSUPP, f"{unit} is a unit of systemd, which does not run here")
    program = shutil.which("systemctl", path=_SEARCH)
    if program is None:
        raise OSError(errno.EOPNOTSUPP, f"there is no systemctl in {_SEARCH} to change {unit} with")
    assignment = f"{name}={'infinity' if value == 'max' else value}"
    try:
        done = subprocess.run(
            [program, "--no-ask-password", "set-property", "--runtime", "--", unit, assignment],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Nothing of the daemon's own talk with systemd, and no bus but the system's.
            env={"PATH": _SEARCH, "LC_ALL": "C", "SYSTEMD_COLORS": "0"},
            cwd="/",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(
            errno.ETIMEDOUT, f"systemctl did not set {assignment} of {unit} within {_SECONDS:.0f} s"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stdout.decode("utf-8", "replace").split())[-_SAID_CHARACTERS:]
        raise OSError(errno.EIO, f"systemctl would not set {assignment} of {unit}: {said or f'code {done.returncode}'}")
