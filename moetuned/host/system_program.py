"""Runs programs of the system as root (`host/program_search.py`), with no shell and an empty environment."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from moetuned.host.bounded_program import Ended, run_bounded
from moetuned.host.program_search import ENVIRONMENT, find_program

_SECONDS = 60.0
_SAID_BYTES = 300


class ProgramError(OSError):
    """A program is missing, failed or did not end; the text is one sentence."""


def run_program(
    name: str, arguments: Sequence[str], package: str, seconds: float | None = None, outside: bool = False
) -> None:
    """Run a system program to its end, at most a minute, or `seconds`. Raises ProgramError with what it said when it fails.

    Output is neither kept nor shown beyond a line. It gets nothing of the daemon's environment: no talk with the service manager,
    no other bus than the system's, no options (MODPROBE_OPTIONS). `package`: what to install where there is none.
    `outside`: it needs what the daemon's unit takes away.
    """
    _ended(name, arguments, package, _SECONDS if seconds is None else seconds, _SAID_BYTES, outside)


def ask_program(name: str, arguments: Sequence[str], package: str, seconds: float, limit_bytes: int) -> str:
    """What a system program prints, undecodable bytes replaced. Else as `run_program`; more than `limit_bytes` is an error, too."""
    ended = _ended(name, arguments, package, seconds, limit_bytes)
    if ended.cut:
        raise ProgramError(f"{name} printed more than {limit_bytes} bytes")
    return ended.output.decode("utf-8", "replace")


def _ended(
    name: str, arguments: Sequence[str], package: str, seconds: float, limit_bytes: int, outside: bool = False
) -> Ended:
    """How it ended well. Raises ProgramError."""
    program = find_program(name)
    if program is None:
        raise ProgramError(f"there is no program {name}; install {package}")
    try:
        ended = run_bounded(
            (program, *arguments), ENVIRONMENT, seconds, limit_bytes=limit_bytes, errors_apart=True, outside=outside
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ProgramError(f"{name} could not be run: {getattr(error, 'strerror', None) or error}") from error
    if ended.timed_out:
        raise ProgramError(f"{name} did not end within {seconds:.0f} s")
    if ended.exit_code is None:
        raise ProgramError(f"{name} was ended by a signal")
    if ended.exit_code != 0:
        text = " ".join(ended.errors[:_SAID_BYTES].decode("utf-8", "replace").split())
        raise ProgramError(f"{name} failed with code {ended.exit_code}{f': {text}' if text else ''}")
    return ended
