"""What following a small process inside a backend's cgroup comes to, whatever it does there: its lines become progress, its end is seen once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import msgspec

from moetuned.host.cgroup_process import CgroupProcess

LineT = TypeVar("LineT", bound=msgspec.Struct)
ProgressT = TypeVar("ProgressT")


class FollowedProcess(ABC, Generic[LineT, ProgressT]):
    """A running one. Watch `fileno()` for reading, then call `advance()`; once `progress` says it has ended, all is closed."""

    def __init__(self, process: CgroupProcess, line: type[LineT], progress: ProgressT) -> None:
        """`line`: what one line of it is read as; `progress`: where it begins."""
        self._process = process
        self._line = line
        self._over = False
        self.progress = progress

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Its standard output; -1 once it has ended."""
        return self._process.fileno()

    def advance(self) -> ProgressT:
        """Read what it has said, never waiting for more; a line that is none is passed over."""
        for text in self._process.lines():
            try:
                line = msgspec.json.decode(text, type=self._line)
            except msgspec.MsgspecError:
                continue
            self._take(line)
        self._see_end()
        return self.progress

    def stop(self) -> None:
        """Have it end, within the piece it is at; `advance` says when it has."""
        self._process.stop()

    def kill(self) -> None:
        """End it now and collect it; nothing of it is left when this returns."""
        self._process.kill()
        self._see_end()

    def _see_end(self) -> None:
        if self._process.code is not None and not self._over:
            self._over = True
            self._end(self._process.code)

    @abstractmethod
    def _take(self, line: LineT) -> None:
        """It has said something: bring `progress` up to date."""

    @abstractmethod
    def _end(self, code: int) -> None:
        """It is gone, with this exit code: let `progress` say so."""
