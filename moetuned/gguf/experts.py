"""Which bytes of a model are routed experts, and where expert e of layer l lies.

Tensor dimensions in GGUF are innermost first and the expert index is the outermost one, so an expert's share of a
tensor is one contiguous slice. Names: llama.cpp's own pattern for `--cpu-moe` (b11434), which leaves shared experts and
routers alone; files from before April 2024 keep every Mixtral expert in a tensor of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from moetuned.gguf.header import GgufError, Header, Tensor
from moetuned.gguf.metadata import MAX_LAYERS, Metadata, architecture, integer, layer_integers, trunk_count
from moetuned.gguf.tensor_types import type_name
from moetuned.schema.model import ByteRange, ModelLayout

_ROUTED = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch|)exps")
_ROUTED_ALONE = re.compile(r"^blk\.\d+\.ffn_(?:up|down|gate)\.(\d+)\.(?:weight|bias)$")
_SHARED = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_shexp|\.ffn_gate_inp_shexp")
_ROUTER = re.compile(r"\.ffn_gate_inp\.|\.exp_probs_b")
_LAYER = re.compile(r"(?:^|\.)blk\.(\d{1,6})\.")
_TOKEN_TABLES = ("token_embd.weight", "per_layer_token_embd.weight")


class Role(StrEnum):
    """What a tensor is for. Of `EMBEDDING` only the rows of used tokens are touched, of `DENSE` everything each token."""

    ROUTED_EXPERT = "routed_expert"
    SHARED_EXPERT = "shared_expert"
    ROUTER = "router"
    EMBEDDING = "embedding"
    DENSE = "dense"


class ExpertTensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor of routed experts: `count` slices of `slice_bytes` from `offset` of part `part`.

    `alone`: the number of the only expert it holds (old Mixtral files); None: it holds slices of all experts.
    """

    name: str
    layer: int
    part: int
    offset: int
    slice_bytes: int
    count: int
    alone: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all slices together."""
        return self.slice_bytes * self.count


class ExpertMap(msgspec.Struct, frozen=True):
    """Where the routed experts of a model lie; a dense model has no `tensors`.

    `layers`: blocks that every token passes (next-token-prediction blocks, only read when speculation is on, left out).
    `used`: experts a token uses, a layer each. `token_tables`: tensors of which only single rows are read.
    """

    layers: int
    experts: int
    used: tuple[int, ...]
    tensors: tuple[ExpertTensor, ...]
    token_tables: tuple[ByteRange, ...]
    part_bytes: tuple[int, ...]


def role(name: str) -> Role:
    """What the tensor `name` is for, by its name alone."""
    if _ROUTED.search(name) or _ROUTED_ALONE.match(name):
        return Role.ROUTED_EXPERT
    if _SHARED.search(name):
        return Role.SHARED_EXPERT
    if _ROUTER.search(name):
        return Role.ROUTER
    return Role.EMBEDDING if name in _TOKEN_TABLES else Role.DENSE


def expert_map(headers: Sequence[Header], part_bytes: Sequence[int]) -> ExpertMap:
    """The expert map of a model from the headers and file sizes of all its parts, in order.

    Raises GgufError when a tensor's type is not known or metadata and tensors contradict each other: bytes are never
    guessed.
    """
    names = {tensor.name for header in headers for tensor in header.tensors}
    found: list[ExpertTensor] = []
    tables: list[ByteRange] = []
    for part, header in enumerate(headers):
        for tensor in header.tensors:
            if tensor.size_bytes is None:
                raise GgufError(
                    f"the tensor {tensor.name!r} has {type_name(tensor.type_code)}, so the layout of the model is unknown; "
                    "llama.cpp b11549 does not know it either (a file for ik_llama.cpp or a newer llama.cpp?)"
                )
            what = role(tensor.name)
            if what is Role.ROUTED_EXPERT:
                found.append(_expert_tensor(tensor, part))
            elif what is Role.EMBEDDING and (tensor.name != "token_embd.weight" or "output.weight" in names):
                # Without an output matrix of its own the token table is read whole for every token.
                tables.append(ByteRange(part, tensor.offset, tensor.size_bytes))
    sizes = tuple(part_bytes)
    metadata = headers[0].metadata
    if not found:
        return ExpertMap(_dense_layers(metadata), 0, (), (), tuple(tables), sizes)
    layers = trunk_count(metadata)
    experts = max(tensor.count if tensor.alone is None else tensor.alone + 1 for tensor in found)
    _check_experts(metadata, experts)
    found.sort(key=lambda tensor: (tensor.part, tensor.offset))
    return ExpertMap(layers, experts, _used_experts(metadata, layers, experts), tuple(found), tuple(tables), sizes)


def _expert_tensor(tensor: Tensor, part: int) -> ExpertTensor:
    match = _LAYER.search(tensor.name)
    layer = int(match[1]) if match else -1
    if not 0 <= layer < MAX_LAYERS:
        raise GgufError(f"the expert tensor {tensor.name!r} is of no layer below {MAX_LAYERS}")
    size = tensor.size_bytes or 0
    alone = _ROUTED_ALONE.match(tensor.name)
    if alone is not None:
        if len(alone[1]) > 5:
            raise GgufError(f"the expert tensor {tensor.name!r} has an impossible number")
        return ExpertTensor(tensor.name, layer, part, tensor.offset, size, 1, int(alone[1]))
    count = tensor.shape[-1] if tensor.shape else 0
    if count == 0 or size % count or size == 0:
        raise GgufError(f"the expert tensor {tensor.name!r} of shape {list(tensor.shape)} cannot be cut into experts")
    return ExpertTensor(tensor.name, layer, part, tensor.offset, size // count, count)


def _dense_layers(metadata: Metadata) -> int:
    """Layers of a model without experts; 0 for what is no language model, such as a vision projector."""
    try:
        return trunk_count(metadata)
    except GgufError:
        return 0


def _check_experts(metadata: Metadata, experts: int) -> None:
    key = f"{architecture(metadata)}.expert_count"
    claimed = integer(metadata, key)
    if claimed != experts:
        raise GgufError(f"{key} is {claimed}, but its expert tensors hold {experts} experts")


def _used_experts(metadata: Metadata, layers: int, experts: int) -> tuple[int, ...]:
    key = f"{architecture(metadata)}.expert_used_count"
    used = layer_integers(metadata, key, layers)
    if used is None:
        raise GgufError(f"it has experts but no {key}, so how many a token reads is unknown")
    if max(used, default=0) > experts:
        raise GgufError(f"{key} is {max(used)}, more than the {experts} experts there are")
    return used


def layout(experts: ExpertMap) -> ModelLayout:
    """Sizes of a model in bytes; `expert_bytes + other_bytes` is the size of its files."""
    expert_bytes = sum(tensor.size_bytes for tensor in experts.tensors)
    active = 0
    per_layer: dict[int, int] = {}
    for tensor in experts.tensors:
        # Tensors of one expert each stand for one slice of a tensor of all.
        share = tensor.slice_bytes if tensor.alone in (None, 0) else 0
        per_layer[tensor.layer] = per_layer.get(tensor.layer, 0) + share
    for layer, slice_bytes in per_layer.items():
        if layer < len(experts.used):
            active += experts.used[layer] * slice_bytes
    return ModelLayout(
        layers=experts.layers,
        experts=experts.experts,
        experts_used=max(experts.used, default=0),
        expert_slice_bytes=max((tensor.slice_bytes for tensor in experts.tensors), default=0),
        expert_bytes=expert_bytes,
        other_bytes=sum(experts.part_bytes) - expert_bytes,
        active_expert_bytes=active,
    )


def expert_slices(experts: ExpertMap, layer: int, expert: int) -> tuple[ByteRange, ...]:
    """All byte ranges of one routed expert of one layer, in file order; empty when there is no such expert.

    Where a layer has fewer slices than experts (the chunk experts of grovemoe), neighbours share one.
    """
    ranges = []
    for tensor in experts.tensors:
        if tensor.layer != layer or not 0 <= expert < experts.experts:
            continue
        if tensor.alone not in (None, expert):
            continue
        index = 0 if tensor.alone is not None else expert * tensor.count // experts.experts
        ranges.append(ByteRange(tensor.part, tensor.offset + index * tensor.slice_bytes, tensor.slice_bytes))
    return tuple(ranges)


def expert_ranges(experts: ExpertMap) -> tuple[ByteRange, ...]:
    """All bytes of routed experts, in file order, neighbours joined."""
    return tuple(_joined(ByteRange(tensor.part, tensor.offset, tensor.size_bytes) for tensor in experts.tensors))


def embedding_ranges(experts: ExpertMap) -> tuple[ByteRange, ...]:
    """Token tables, of which only the rows of used tokens are read: worth the least memory of all that is no expert."""
    return tuple(_joined(sorted(experts.token_tables, key=_position)))


def other_ranges(experts: ExpertMap, *, embeddings: bool = True) -> tuple[ByteRange, ...]:
    """All bytes of the files that are no routed expert, headers included, in file order; `embeddings=False` leaves
    `embedding_ranges` out.
    """
    taken = list(expert_ranges(experts))
    if not embeddings:
        taken = sorted((*taken, *embedding_ranges(experts)), key=_position)
    by_part: dict[int, list[ByteRange]] = {}
    for one in taken:
        by_part.setdefault(one.part, []).append(one)
    ranges = []
    for part, size in enumerate(experts.part_bytes):
        position = 0
        for one in by_part.get(part, ()):
            if one.offset > position:
                ranges.append(ByteRange(part, position, one.offset - position))
            position = one.offset + one.length
        if size > position:
            ranges.append(ByteRange(part, position, size - position))
    return tuple(ranges)


def _position(one: ByteRange) -> tuple[int, int]:
    return one.part, one.offset


def _joined(ranges: Iterable[ByteRange]) -> Iterator[ByteRange]:
    last: ByteRange | None = None
    for one in ranges:
        if last is not None and last.part == one.part and last.offset + last.length == one.offset:
            last = ByteRange(last.part, last.offset, last.length + one.length)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last
