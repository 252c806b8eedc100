"""Command lines of Python programs: `python [options] -m module arguments…` and `python [options] script.py arguments…`."""

from __future__ import annotations

from collections.abc import Sequence

_OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


def module_arguments(argv: Sequence[str], module: str) -> tuple[str, ...] | None:
    """What follows `-m module`; None when `argv` is no Python interpreter that runs this module."""
    if not argv or not argv[0].rpartition("/")[2].startswith("python"):
        return None
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        option = argv[position]
        if option == "-m":
            named = argv[position + 1] if position + 1 < len(argv) else None
            return tuple(argv[position + 2 :]) if named == module else None
        if option == "-c":
            return None
        position += 2 if option in _OPTIONS_WITH_VALUE else 1
    return None


def script_arguments(argv: Sequence[str], script: str) -> tuple[str, ...] | None:
    """What follows a script of this file name; None when `argv` is no Python interpreter that runs one."""
    if not argv or not argv[0].rpartition("/")[2].startswith("python"):
        return None
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        if argv[position] in ("-m", "-c"):
            return None
        position += 2 if argv[position] in _OPTIONS_WITH_VALUE else 1
    named = argv[position].rpartition("/")[2] if position < len(argv) else None
    return tuple(argv[position + 1 :]) if named == script else None
