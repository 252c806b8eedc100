"""Ends what a backend's process left in its session when it ended; nothing is started while some of that lives."""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
from collections.abc import Callable

from moetuned.daemon.loop import Loop
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.host.started_processes import left_in_session

log = logging.getLogger(__name__)


class LeftBehind:
    """Of one backend. Belongs to the loop's thread."""

    def __init__(self, name: str, loop: Loop) -> None:
        self._name = name
        self._loop = loop
        self._handles: dict[int, ProcessHandle] = {}
        """What has not ended yet, by descriptor."""

    def end(self, identity: ProcessIdentity, word: str, gone: Callable[[], None]) -> None:
        """End what the process `identity`, which had `word` in its environment, left; `gone` is called once nothing of it runs."""
        try:
            left = left_in_session(identity.pid, word)
        except (OSError, ValueError) as error:
            log.warning("%s: what it left behind cannot be looked for: %s", self._name, error)
            left = ()
        for handle in left:
            log.info("%s: ending process %d, which it left behind", self._name, handle.identity.pid)
            with contextlib.suppress(PermissionError):
                handle.send(signal.SIGKILL)
            self._handles[handle.fileno()] = handle

            def ended(_events: int, handle: ProcessHandle = handle) -> None:
                self._ended(handle, gone)

            self._loop.add(handle.fileno(), selectors.EVENT_READ, ended)
        if not self._handles:
            gone()

    def let_go(self) -> None:
        """Wait for none of it any more; `gone` is not called."""
        for descriptor, handle in self._handles.items():
            self._loop.remove(descriptor)
            handle.close()
        self._handles = {}

    def _ended(self, handle: ProcessHandle, gone: Callable[[], None]) -> None:
        descriptor = handle.fileno()
        self._loop.remove(descriptor)
        self._handles.pop(descriptor, None)
        handle.close()
        if not self._handles:
            gone()
