"""Which experts a token uses: skewed, dependent on the topic, partly as the token before.

Published routing traces agree on the shape: a few experts of a layer take most tokens, another text prefers others, and about
40 % of the selections of one token are made again by the next one. Everything is derived from the layer, the topic and
the request's own random numbers, so a topic has the same working set after a restart.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from itertools import accumulate

_SKEW = 0.5
_TOPIC_SHARE = 0.3
_OUTSIDE_WEIGHT = 0.0008
_REPEAT_PROBABILITY = 0.4


class TopicRouter:
    """Picks `used` experts a layer of `experts`; tables are made when a layer and topic are first asked for."""

    def __init__(self, experts: int, used: Sequence[int]) -> None:
        self._experts = experts
        self._used = tuple(used)
        self._tables: dict[tuple[int, int], array[float]] = {}

    def pick(self, layer: int, topic: int, chooser: random.Random, before: Sequence[int] = ()) -> tuple[int, ...]:
        """The experts one token of `topic` uses in `layer`; `before` are those of the token before."""
        wanted = self._used[layer]
        chosen = {expert for expert in before if chooser.random() < _REPEAT_PROBABILITY}
        table = self._table(layer, topic)
        numbers = range(self._experts)
        while len(chosen) < wanted:
            chosen.update(chooser.choices(numbers, cum_weights=table, k=wanted - len(chosen)))
        return tuple(sorted(chosen))

    def _table(self, layer: int, topic: int) -> array[float]:
        """Cumulative weights of the experts."""
        table = self._tables.get((layer, topic))
        if table is None:
            ranks = random.Random(f"rank {layer}").sample(range(1, self._experts + 1), self._experts)
            favourites = max(self._used[layer], round(self._experts * _TOPIC_SHARE))
            inside = set(random.Random(f"topic {layer} {topic}").sample(range(self._experts), favourites))
            weights = (
                rank**-_SKEW * (1.0 if expert in inside else _OUTSIDE_WEIGHT) for expert, rank in enumerate(ranks)
            )
            table = self._tables[layer, topic] = array("d", accumulate(weights))
        return table
