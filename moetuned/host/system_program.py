"""Programs of the system that are run as root: looked for in the system's own directories, with no shell and an empty environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_SECONDS = 60.0
_SAID_BYTES = 300


class ProgramError(OSError):
    """A program is missing, failed or did not end; the text is one sentence."""


def find_program(name: str) -> str | None:
    """The absolute path of a system program; PATH is not asked: this runs as root."""
    for directory in _DIRECTORIES:
        path = f"{directory}/{name}"
        if os.access(path, os.X_OK):
            return path
    return None


def run_program(name: str, arguments: Sequence[str], package: str, seconds: float | None = None) -> None:
    """Run a system program to its end, at most a minute, or `seconds`. Raises ProgramError with what it said when it fails.

    Output is neither kept nor shown beyond a line. It gets nothing of the daemon's environment: no talk with the service manager,
    no other bus than the system's, no options (MODPROBE_OPTIONS). `package`: what to install where there is none.
    """
    program = find_program(name)
    if program is None:
        raise ProgramError(f"there is no program {name}; install {package}")
    patience = _SECONDS if seconds is None else seconds
    try:
        done = subprocess.run(
            (program, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"PATH": ":".join(_DIRECTORIES), "LC_ALL": "C"},
            cwd="/",
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{name} did not end within {patience:.0f} s") from error
    if done.returncode != 0:
        said = " ".join(done.stderr[:_SAID_BYTES].decode("utf-8", "replace").split())
        raise ProgramError(f"{name} failed with code {done.returncode}{f': {said}' if said else ''}")
