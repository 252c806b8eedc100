"""Which experts of a model were really used, and which are in memory: a cell for each layer and expert. Data only.

Cells are in rows of layers: the one of layer l and expert e is at `l * experts + e`.
"""

from __future__ import annotations

import msgspec


class ModelStamp(msgspec.Struct, frozen=True):
    """What says that a model file is still the same one: sizes (bytes) and modification times (ns) of all parts, and a hash.

    `header_hash` is of the headers of all parts (hex): a file replaced by another of the same size has another one.
    """

    part_bytes: tuple[int, ...]
    modified_ns: tuple[int, ...]
    header_hash: str


class ExpertPages(msgspec.Struct, frozen=True):
    """Residency of each expert: pages in the page cache, and pages that it has (all its slices together)."""

    layers: int
    experts: int
    cached: tuple[int, ...]
    whole: tuple[int, ...]


class Heat(msgspec.Struct, frozen=True):
    """What is known of the use of each expert.

    `last_used`: the number of the look at which it was last seen to be used, 0 when it never was. `look`: the number of the last
    look, one more each time. `saved_wall_seconds`: when it was written (Unix time). `stayed`: the last time that experts of unknown use
    were paged out, most of them were in memory afterwards, so what loading leaves cannot be told from what is used.
    """

    model: ModelStamp
    layers: int
    experts: int
    last_used: tuple[int, ...]
    look: int
    saved_wall_seconds: float
    stayed: bool = False
