"""Finds running backends of the kinds that there are, for the loop; it runs in a worker. `host.running_backends` does it."""

from __future__ import annotations

from collections.abc import Sequence

from moetuned import backends
from moetuned.host import running_backends
from moetuned.host.running_backends import FoundBackend, address_of, belongs_to, name_for
from moetuned.schema.config import Backend

__all__ = ["Finder", "FoundBackend", "address_of", "belongs_to", "name_for"]


class Finder(running_backends.Finder):
    """Finds all running backends of a known kind, again and again. Used by one thread at a time."""

    def __init__(self) -> None:
        super().__init__(backends.find)

    def configure(self, entries: Sequence[Backend]) -> None:
        """Also find what these entries of the config describe; from another thread, for the next search."""
        self._kind_of = backends.finder_of(entries)
