"""Where programs of the system are: in the system's own directories alone."""

from __future__ import annotations

import os

DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
ENVIRONMENT = {"PATH": ":".join(DIRECTORIES), "LC_ALL": "C"}
"""What they are run with: nothing of the daemon's own, and answers in English."""


def find_program(name: str) -> str | None:
    """The absolute path of a system program; PATH is not asked: this runs as root."""
    for directory in DIRECTORIES:
        path = f"{directory}/{name}"
        if os.access(path, os.X_OK):
            return path
    return None
