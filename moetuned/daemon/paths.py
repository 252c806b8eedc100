"""Where the daemon keeps things."""

from __future__ import annotations

import os

import msgspec


class Paths(msgspec.Struct, frozen=True):
    """Where the daemon keeps things. `config` None: the default file, if it is there."""

    config: str | None
    journal: str
    records: str
    socket: str | None = None

    @property
    def state_directory(self) -> str:
        """What must survive the daemon."""
        return os.path.dirname(self.journal)

    @property
    def runtime_directory(self) -> str:
        """Gone after a reboot."""
        return os.path.dirname(self.records)
