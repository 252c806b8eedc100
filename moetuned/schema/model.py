"""What is known of a model file: identity and the layout of its bytes."""

from __future__ import annotations

import msgspec


class ByteRange(msgspec.Struct, frozen=True, gc=False):
    """`length` bytes from `offset` of the file `part` (index into the model's list of part files)."""

    part: int
    offset: int
    length: int


class ModelLayout(msgspec.Struct, frozen=True):
    """How a Mixture-of-Experts model's bytes are used; all sizes in bytes.

    `expert_slice_bytes` is one expert's slice of one tensor (the largest such slice when they differ),
    `active_expert_bytes` what one token reads of experts when nothing is cached, `other_bytes` everything
    that is no routed expert. A dense model has `experts == 0` and `expert_bytes == 0`.
    """

    layers: int
    experts: int
    experts_used: int
    expert_slice_bytes: int
    expert_bytes: int
    other_bytes: int
    active_expert_bytes: int


class ModelIdentity(msgspec.Struct, frozen=True):
    """A model on disk. `paths` are all parts in order; `size_bytes` is their sum."""

    paths: tuple[str, ...]
    size_bytes: int
    layout: ModelLayout | None = None
    kv_bytes_per_token: int | None = None
    devices: tuple[str, ...] = ()
    unknown: str | None = None
    """Why layout or KV cost are unknown, one sentence; None when all is known."""
