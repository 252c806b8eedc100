"""What to call a process: its command name and the unit or container it is in, both printable whatever they hold."""

from __future__ import annotations

from moetuned.parse.cgroup_names import container_of

NAME_LENGTH = 64
UNIT_LENGTH = 80
_UNITS = (".service", ".scope")


def printable_name(comm: str) -> str:
    """/proc/<pid>/comm without its newline; what cannot be printed (newlines, escape sequences) is `?`."""
    return _printable(comm.removesuffix("\n"), NAME_LENGTH) or "?"


def unit_of(cgroup: str) -> str | None:
    """The container, service or scope of /proc/<pid>/cgroup, e.g. "backup.service"; None when it is in none."""
    paths = [path for line in cgroup.split("\n") if (path := line.partition(":")[2].partition(":")[2]).startswith("/")]
    for path in paths:
        container = container_of(path)
        if container is not None:
            return _printable(container, UNIT_LENGTH)
    for path in paths:
        for part in reversed(path.split("/")):
            if part.endswith(_UNITS) and part != "init.scope":
                return _printable(part, UNIT_LENGTH)
    return None


def services_of(cgroup: str) -> frozenset[str]:
    """The services of the system's systemd that /proc/<pid>/cgroup is in or below; those of a user's own are none."""
    parts = [path.split("/") for path in cgroup_paths(cgroup)]
    system = [each for each in parts if not any(part.startswith("user@") for part in each)]
    return frozenset(part for each in system for part in each if part.endswith(".service"))


def cgroup_paths(cgroup: str) -> frozenset[str]:
    """All paths of /proc/<pid>/cgroup but the root."""
    paths = (line.partition(":")[2].partition(":")[2] for line in cgroup.split("\n"))
    return frozenset(path for path in paths if path.startswith("/") and path != "/")


def _printable(text: str, length: int) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= length else shown[: length - 1] + "…"
