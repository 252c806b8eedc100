"""Which files of a set of drop-in directories are read, and in which order (sysctl.d(5), tmpfiles.d(5), udev(7))."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def reading_order(listings: Iterable[tuple[str, Sequence[str]]], suffix: str) -> tuple[str, ...]:
    """Paths in the order they are read: by file name, whatever the directory.

    `listings` are (directory, names in it), the most important directory first: of files with one name only its file is read,
    which is how a file in /etc replaces (or, as a link to /dev/null, masks) that of a package.
    """
    chosen: dict[str, str] = {}
    for directory, names in listings:
        for name in names:
            if name.endswith(suffix) and name != suffix:
                chosen.setdefault(name, f"{directory}/{name}")
    return tuple(chosen[name] for name in sorted(chosen))
