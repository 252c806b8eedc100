"""Asks systemd to change a property of a unit that runs, until the next boot (systemctl(1), set-property --runtime).

A limit of a unit's cgroup is systemd's: what is written past it stands only until systemd realises the unit again.
"""

from __future__ import annotations

import errno
import re

from moetuned.host.system_program import ProgramError, ask_program, run_program
from moetuned.host.systemd_booted import is_booted

_SECONDS = 20.0
# systemd.unit(5): at most 255 of these; what else a name has is written as \x2d. Not a hyphen first: that would be an option.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,200}\.(service|scope|slice)")
_PROPERTIES = frozenset({"IOWeight", "MemoryLow", "MemoryMin"})
_VALUE = re.compile(r"[0-9]{1,20}|max")
_ANSWER_BYTES = 256


def is_unit(name: str) -> bool:
    """Whether `name` can be that of a unit which has a cgroup."""
    return _UNIT.fullmatch(name) is not None


def set_property(unit: str, name: str, value: str) -> None:
    """Give `unit` the property `name` (MemoryLow, MemoryMin, IOWeight), a whole number or `max`, until the next boot.

    Blocks for at most 20 s. Raises OSError with what systemctl said, ValueError for what is no unit, property or value.
    """
    if not is_unit(unit):
        raise ValueError(f"{unit!r} is no unit that has a cgroup")
    if name not in _PROPERTIES or _VALUE.fullmatch(value) is None:
        raise ValueError(f"{name}={value} is nothing that moetuned sets of a unit")
    if not is_booted():
        raise OSError(errno.EOPNOTSUPP, f"{unit} is a unit of systemd, which does not run here")
    assignment = f"{name}={'infinity' if value == 'max' else value}"
    arguments = ("--no-ask-password", "set-property", "--runtime", "--", unit, assignment)
    try:
        run_program("systemctl", arguments, "systemd", _SECONDS)
    except ProgramError as error:
        raise OSError(errno.EIO, f"systemctl would not set {assignment} of {unit}: {error}") from error


def property_of(unit: str, name: str) -> str | None:
    """What systemd would set the property to, also for a unit that does not run: a whole number or `max`; None where it says neither.

    Blocks for at most 20 s. Raises OSError with what systemctl said, ValueError for what is no unit or property.
    """
    if not is_unit(unit) or name not in _PROPERTIES:
        raise ValueError(f"{name} of {unit!r} is nothing that moetuned asks for")
    try:
        said = ask_program(
            "systemctl", ("show", f"--property={name}", "--value", "--", unit), "systemd", _SECONDS, _ANSWER_BYTES
        ).strip()
    except ProgramError as error:
        raise OSError(errno.EIO, f"systemctl would not say {name} of {unit}: {error}") from error
    said = "max" if said == "infinity" else said
    return said if _VALUE.fullmatch(said) is not None else None
