"""What memory.min keeps on this machine: counted with what cannot be reclaimed, and given up where it is ours and memory is near its limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from moetuned.daemon.watched import Watched
from moetuned.decide import relief
from moetuned.host.fs import HostFS
from moetuned.host.kept_cgroups import kept_cgroups
from moetuned.schema.sample import KeptCgroup
from moetuned.schema.units import format_bytes

LOOK_SECONDS = 30.0
"""Whoever sets it does so seldom."""


class KeptMemory:
    """Belongs to the loop's thread."""

    def __init__(self, fs: HostFS, give_up: Callable[[str], bool]) -> None:
        """`give_up` gives up what is kept for backends, with the reason, one sentence; whether there was any."""
        self._fs = fs
        self._give_up = give_up
        self._found: tuple[KeptCgroup, ...] = ()
        self._next_look = 0.0
        self._places: frozenset[str] = frozenset()
        self._given_up = False
        """At this look."""

    def follow(self, backends: Sequence[Watched], now: float) -> None:
        """Before a look: what is kept now counts for each of them."""
        self._given_up = False
        places = frozenset(place for watched in backends for place in _limited(watched))
        if now >= self._next_look or places != self._places:
            self._found, self._places = kept_cgroups(self._fs, places), places
            self._next_look = now + LOOK_SECONDS
        for watched in backends:
            watched.kept = self._found

    def gives_up_for(self, watched: Watched) -> bool:
        """Whether something was given up now because memory is near a limit below which something is kept: that comes before any relief.

        Of several whose memory is near it, the first one gives it up for all: what was seen of the others is from before that.
        """
        memory = watched.memory
        if watched.verdict.memory not in relief.NEAR or not memory.kept_bytes:
            return False
        if self._given_up:
            return True
        why = (
            f"memory was near its limit ({memory.limit_of or 'unknown'}) for {watched.name}, and {format_bytes(memory.kept_bytes)} of it "
            "was page cache that is kept"
        )
        if not self._give_up(why):
            return False
        self._given_up, self._next_look = True, 0.0
        return True


def _limited(watched: Watched) -> Iterator[str]:
    """Cgroups whose limit it lives under."""
    cgroup = watched.cgroup
    if cgroup.directory is not None:
        yield cgroup.directory
    yield from cgroup.limited_above
