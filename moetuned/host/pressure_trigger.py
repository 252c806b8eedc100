"""A PSI trigger: the kernel says when tasks stall for memory, so that a squeeze is seen before the next tick.

Documentation/accounting/psi.rst: a file of stalls is opened for writing and told how much stall within which window is of interest; it
then becomes ready for POLLPRI, at most once a window, and for POLLERR once its cgroup is gone. `selectors` knows neither, so an epoll
descriptor stands between: the selector sees that one readable. Asking the file itself whether it is ready takes the event away
(psi_trigger_poll), and the selector has asked by then: being called at all is the news.

Windows that are no multiple of two seconds need CAP_SYS_RESOURCE; before Linux 6.5 every trigger did.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable

MACHINE_FILE = "/proc/pressure/memory"
CGROUP_FILE = "memory.pressure"

STALLED_RATIO = 0.05
"""Of a window, for some task. Measured: a thrashing backend 10 to 30 %, a healthy one near 0."""
WINDOWS_MICROSECONDS = (1_000_000, 2_000_000)
"""Tried in this order."""


class TriggerError(OSError):
    """There can be no trigger; the text says why."""


class PressureTrigger:
    """One trigger. Belongs to one thread."""

    def __init__(self, path: str, write: Callable[[int, bytes], int] = os.write) -> None:
        """Watch `path`, memory.pressure of a v2 cgroup or /proc/pressure/memory. Raises TriggerError. `write`: for tests."""
        self.path = path
        self.window_seconds = 0.0
        try:
            self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise TriggerError(error.errno, f"{path}: {_why(error)}") from error
        try:
            self._set(write)
            self._epoll = select.epoll()
        except OSError:
            os.close(self._file)
            raise
        try:
            self._epoll.register(self._file, select.EPOLLPRI)
        except OSError as error:  # a file of a test, or one that cannot be waited for
            self.close()
            raise TriggerError(error.errno, f"{path}: {error.strerror}") from error

    def _set(self, write: Callable[[int, bytes], int]) -> None:
        refused: OSError | None = None
        for window in WINDOWS_MICROSECONDS:
            try:
                write(self._file, b"some %d %d\0" % (window * STALLED_RATIO, window))
            except OSError as error:
                refused = error
                if error.errno not in (errno.EINVAL, errno.EPERM):
                    break
            else:
                self.window_seconds = window / 1e6
                return
        assert refused is not None
        raise TriggerError(refused.errno, f"{self.path}: {_why(refused)}") from refused

    def fileno(self) -> int:
        """Readable when tasks have stalled, and for ever once the cgroup is gone; then call `is_gone`."""
        return self._epoll.fileno()

    def is_gone(self) -> bool:
        """Whether its cgroup was removed: it says nothing any more, close it. Takes the event away."""
        return any(events & (select.EPOLLERR | select.EPOLLHUP) for _, events in self._epoll.poll(0))

    def close(self) -> None:
        """Give it back to the kernel; again does nothing."""
        self._epoll.close()
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)


def _why(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{error.strerror}; a trigger needs CAP_SYS_RESOURCE and a file that may be written"
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
        return f"{error.strerror}; the kernel has no PSI, or it is switched off (psi=1 switches it on)"
    return error.strerror or type(error).__name__
