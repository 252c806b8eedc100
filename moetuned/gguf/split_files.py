"""Models split over several files: which names belong together, and whether the parts at hand are whole and of one model.

llama.cpp names the parts `<prefix>-%05d-of-%05d.gguf`, counted from 1, and looks for exactly these names beside the
first one; each header carries `split.no` (from 0), `split.count` and `split.tensors.count` (of all parts together).
Source: `llama_split_path` and `llama_model_loader` of llama.cpp b11434.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from moetuned.gguf.header import Header
from moetuned.schema.units import format_bytes

MAX_PARTS = 1024

_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)
_UNFINISHED = (".part", ".partial", ".incomplete", ".aria2", ".crdownload", ".download", ".tmp", ".!qB")


class SplitName(msgspec.Struct, frozen=True):
    """The name of one part: `number` of `count`, counted from 1."""

    prefix: str
    number: int
    count: int


class Part(msgspec.Struct, frozen=True):
    """One part that was found: its name, size in bytes and header."""

    name: str
    size_bytes: int
    header: Header


def split_name(name: str) -> SplitName | None:
    """What the file name `name` says about a split; None when it is not the name of a part."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    number, count = int(match[2]), int(match[3])
    return SplitName(match[1], number, count) if 1 <= number <= count <= MAX_PARTS else None


def part_names(name: str) -> tuple[str, ...]:
    """File names of all parts of the model of which `name` is one, in order; only `name` when it is not split."""
    split = split_name(name)
    if split is None:
        return (name,)
    return tuple(f"{split.prefix}-{number:05}-of-{split.count:05}.gguf" for number in range(1, split.count + 1))


def missing_part(names: Sequence[str], siblings: Iterable[str]) -> str | None:
    """One sentence about the first of `names` that is not among `siblings` (the directory's file names); None: all there."""
    present = set(siblings)
    missing = [name for name in names if name not in present]
    if not missing:
        return None
    first, count = missing[0], len(names)
    others = f" (and {len(missing) - 1} more of {count} parts)" if len(missing) > 1 else f" (of {count} parts)"
    unfinished = next((first + ending for ending in _UNFINISHED if first + ending in present), None)
    if unfinished is not None:
        return f"part {first}{others} is still downloading: {unfinished} is there; let the download finish"
    wanted = split_name(first)
    lookalike = next((name for name in sorted(present) if _same_number(split_name(name), wanted)), None)
    if lookalike is not None:
        return (
            f"part {first}{others} is missing, but {lookalike} is there; if it was renamed, give it its old name back"
        )
    return f"part {first}{others} is missing; download it into the same directory"


def unfinished_marks(name: str) -> tuple[str, ...]:
    """File names that downloaders keep beside `name`, or in its place, until it is complete."""
    return tuple(name + ending for ending in _UNFINISHED)


def _same_number(found: SplitName | None, wanted: SplitName | None) -> bool:
    return found is not None and wanted is not None and (found.number, found.count) == (wanted.number, wanted.count)


class PartProblem(msgspec.Struct, frozen=True):
    """Something wrong with part `index` (None: with all of them together).

    `kind`: "name" (not the part its name says), "mixed" (of another model), "extents" (tensors past any possible
    end), "short" (less than the header promises). `sentence` names the part and the cure.
    """

    index: int | None
    kind: str
    sentence: str


def wrong_part(parts: Sequence[Part]) -> str | None:
    """One sentence about the first thing wrong with the parts of one model, in order; None when they fit together.

    Checks that each part is the one its name says, that all are of one model, that together they hold every tensor,
    and that each file is as long as its header promises.
    """
    found = next(wrong_parts(parts), None)
    return None if found is None else found.sentence


def wrong_parts(parts: Sequence[Part | None]) -> Iterator[PartProblem]:
    """The first thing wrong with each part, in order, as `wrong_part`; None stands for a part that could not be read."""
    there = [part for part in parts if part is not None]
    well = True
    for index, part in enumerate(parts):
        if part is None:
            continue
        checks = (
            ("name", _wrong_number(part, index, len(parts))),
            ("mixed", _wrong_kind(part, there[0])),
            ("extents", _wrong_extents(part)),
            ("short", _wrong_size(part)),
        )
        for kind, sentence in checks:
            if sentence is not None:
                well = False
                yield PartProblem(index, kind, sentence)
                break
    total = _wrong_total(there) if well and len(there) == len(parts) else None
    if total is not None:
        yield PartProblem(None, "mixed", total)


def _wrong_number(part: Part, index: int, named_count: int) -> str | None:
    count, number = _split_key(part, "split.count") or 1, _split_key(part, "split.no") or 0
    if count <= 1 and named_count == 1:
        return None
    if named_count == 1:
        return (
            f"{part.name} is part {number + 1} of {count} of a split model by its header, but its name does not say so: it was "
            "renamed or the parts were joined; keep the parts as they were downloaded and name the first one"
        )
    if count != named_count:
        return (
            f"{part.name} is by its header {f'one of {count} parts' if count > 1 else 'a model of its own'}, "
            f"but its name says one of {named_count} parts: "
            "it is another model's part or was renamed; download it again"
        )
    if number != index:
        return (
            f"{part.name} is by its header part {number + 1} of {count}: it was renamed; "
            "give the parts the names they were downloaded with"
        )
    return None


def _wrong_kind(part: Part, first_part: Part) -> str | None:
    first, header = first_part.header, part.header
    if header.big_endian != first.big_endian:
        return (
            f"{part.name} has another byte order than {first_part.name}: it is another model's part; download it again"
        )
    if header.architecture not in (None, first.architecture):
        return (
            f"{part.name} is of a {header.architecture} model and {first_part.name} of a {first.architecture} model: "
            "the parts are mixed; download all parts of one model into a directory of their own"
        )
    ours, theirs = (_split_key(other, "split.tensors.count") for other in (part, first_part))
    if ours != theirs:
        return (
            f"{part.name} belongs to a model of {ours} tensors and {first_part.name} to one of {theirs}: "
            "the parts are mixed; download all parts of one model again"
        )
    return None


def _wrong_extents(part: Part) -> str | None:
    header = part.header
    if part.size_bytes >= header.promised_bytes or any(tensor.size_bytes is None for tensor in header.tensors):
        return None
    contents = sum(-(-(tensor.size_bytes or 0) // header.alignment) * header.alignment for tensor in header.tensors)
    if header.promised_bytes <= header.data_offset + contents:
        return None
    last = max(header.tensors, key=lambda tensor: tensor.offset)
    return (
        f"{part.name}: its tensor {last.name!r} would begin at byte {last.offset}, past what the file can hold; "
        "the header is damaged, download it again"
    )


def _wrong_size(part: Part) -> str | None:
    promised = part.header.promised_bytes
    if part.size_bytes >= promised:
        return None
    return (
        f"{part.name} has {format_bytes(part.size_bytes)} of the {format_bytes(promised)} its header promises "
        f"({promised - part.size_bytes} bytes short): it is still downloading or was cut off; "
        "finish or repeat the download"
    )


def _wrong_total(parts: Sequence[Part]) -> str | None:
    owner: dict[str, str] = {}
    for part in parts:
        for tensor in part.header.tensors:
            other = owner.setdefault(tensor.name, part.name)
            if other != part.name:
                return (
                    f"{part.name} holds the tensor {tensor.name!r} that {other} holds too: "
                    "the parts are mixed; download all parts of one model again"
                )
    promised = _split_key(parts[0], "split.tensors.count")
    if len(parts) > 1 and promised is not None and promised != len(owner):
        return (
            f"the {len(parts)} parts beginning with {parts[0].name} hold {len(owner)} tensors and not the {promised} they "
            "promise: a part is of another model; download all parts of one model again"
        )
    return None


def _split_key(part: Part, key: str) -> int | None:
    value = part.header.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
