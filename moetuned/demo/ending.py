"""What ends the demo early, and that nothing interrupts it while it takes everything back."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ctrl-C, a service manager, a terminal that was closed, Ctrl-backslash."""
_PATIENCE = b"\nmoetuned demo: one moment, everything is being taken back\n"


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Within it each of ENDING is a KeyboardInterrupt, the first time; afterwards they do what they did before."""
    before = {number: signal.signal(number, _interrupt) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def deaf() -> None:
    """From now on ENDING only says that it takes a moment: an interrupted cleanup would leave something behind."""
    for number in ENDING:
        signal.signal(number, _be_patient)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    deaf()
    raise KeyboardInterrupt


def _be_patient(_number: int, _frame: object) -> None:
    with contextlib.suppress(OSError):  # not print: the signal may have come in the middle of one
        os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, _PATIENCE)
