"""Rehearses a call where the action makes it: outside of the daemon's unit, if the service manager runs that part of it there."""

from __future__ import annotations

import subprocess
import sys

from moetuned.host.bounded_program import run_bounded
from moetuned.parse.kernel_numbers import single_number

_SECONDS = 5.0
"""With the time to end it, less than a rehearsal may take."""


def error_outside(code: str, *arguments: str) -> int | None:
    """The number of the error that this Python code prints there, 0 for none; None: nothing came of it in time.

    Ask `can_leave` first. Where systemd does not start it, it runs here, as the action will then.
    """
    command = (sys.executable, "-I", "-S", "-c", code, *arguments)
    try:
        ended = run_bounded(command, {}, _SECONDS, errors_apart=True, outside=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return single_number(ended.output.decode("ascii", "replace"))
