"""How many TCP connections the network of a process has taken, to whatever port, also after the process has ended."""

from __future__ import annotations

import contextlib
from typing import BinaryIO

from moetuned.parse.net_snmp import passive_opens

_LIMIT_BYTES = 64 << 10


class TakenConnections:
    """The open file keeps the network it is of, so it can still be read when the process is gone."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._file: BinaryIO | None = None
        with contextlib.suppress(OSError):
            self._file = open(f"{proc}/{pid}/net/snmp", "rb", buffering=0)  # noqa: SIM115  closed by close()
        self._first = self._read()

    def so_far(self) -> int | None:
        """So many since this was made; None: not known."""
        now = self._read()
        return None if now is None or self._first is None or now < self._first else now - self._first

    def close(self) -> None:
        """Do not ask any more."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _read(self) -> int | None:
        if self._file is None:
            return None
        try:
            self._file.seek(0)
            return passive_opens(self._file.read(_LIMIT_BYTES).decode("ascii", "replace"))
        except OSError:
            return None
