"""Who else sets what moetuned sets, as the subcommands of `moetunectl tune` say it."""

from __future__ import annotations

from moetuned.cli.tune_options import Options
from moetuned.decide.rival_match import SWAPS, describe_rival, rivals_of, who_else_sets
from moetuned.host.fs import RealFS
from moetuned.host.rivals import look_for_rivals
from moetuned.schema.rival import FoundRivals
from moetuned.schema.tunable import Place


class Rivals:
    """The rivals of this machine, asked for by setting. `notes`: files that could not be read or understood."""

    def __init__(self, found: FoundRivals) -> None:
        self._found = found.rivals
        self.notes = found.notes

    def of(self, place: Place, value: str | None = None) -> tuple[str, ...]:
        """A clause for each who sets the setting; with `value` only those who may leave something else there."""
        return who_else_sets(self._found, place, value)

    def of_swap(self) -> tuple[str, ...]:
        """A clause for each who makes swap."""
        return tuple(describe_rival(rival) for rival in rivals_of(self._found, [SWAPS]))


def find(options: Options) -> Rivals:
    """Reads the files of the machine, or of the tree, that is looked at."""
    return Rivals(look_for_rivals(RealFS(options.root)))
