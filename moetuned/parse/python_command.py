"""Command lines of Python modules run as programs: `python [options] -m module arguments…`."""

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
