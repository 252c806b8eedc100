"""Runs a command that gets a signal when the demo dies: `python -m moetuned.demo.tied PARENT_PID SIGNAL COMMAND...`.

kill -9 of the demo would otherwise leave the daemon running, with its settings, and the hog with its memory.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tied(command: list[str], number: signal.Signals) -> list[str]:
    """`command`, so that it gets this signal when the process that calls this dies."""
    return [sys.executable, "-m", "moetuned.demo.tied", str(os.getpid()), str(int(number)), *command]


def main(arguments: list[str]) -> int:
    """Does not return, unless the parent has died already: 1."""
    parent, number, command = int(arguments[0]), int(arguments[1]), arguments[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)  # kept over exec, prctl(2)
    if os.getppid() == parent:
        os.execvp(command[0], command)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
