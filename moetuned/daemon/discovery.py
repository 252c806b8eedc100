"""Finds running backends of the kinds that there are, for the loop; it runs in a worker. `host.running_backends` does it."""

from __future__ import annotations

from moetuned import backends
from moetuned.host import running_backends
from moetuned.host.running_backends import FoundBackend, belongs_to, name_for

__all__ = ["Finder", "FoundBackend", "belongs_to", "name_for"]


class Finder(running_backends.Finder):
    """Finds all running backends of a known kind, again and again. Used by one thread at a time."""

    def __init__(self) -> None:
        super().__init__(backends.find)
