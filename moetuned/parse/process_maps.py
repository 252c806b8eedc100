"""/proc/<pid>/maps: which files a process has mapped (proc(5))."""

from __future__ import annotations

_PATH_FIELD = 5
_DELETED = " (deleted)"


def mapping_lines(maps: str) -> list[str]:
    """The lines of maps. Only a newline ends one: a file's name may hold any other character that Python takes for a line's end."""
    return maps.split("\n")


def mapped_files(maps: str, suffix: str) -> tuple[str, ...]:
    """Paths of mapped files that end in `suffix`, once each, in order of address; deleted files are left out.

    The kernel writes a newline in a name as an escape of four characters; such names are given as they are written.
    """
    found: dict[str, None] = {}
    for line in mapping_lines(maps):
        fields = line.split(None, _PATH_FIELD)
        if len(fields) > _PATH_FIELD and fields[_PATH_FIELD].startswith("/"):
            path = fields[_PATH_FIELD]
            if path.endswith(suffix) and not path.endswith(_DELETED):
                found[path] = None
    return tuple(found)
