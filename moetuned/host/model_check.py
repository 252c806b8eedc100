"""Everything that can be found wrong with a model's files without reading their contents; all of it, not only the first."""

from __future__ import annotations

import errno
import os

import msgspec

from moetuned.gguf.header import Header
from moetuned.gguf.split_files import Part, missing_part, part_names, unfinished_marks, wrong_parts
from moetuned.host.model_files import ModelFileError, read_header
from moetuned.host.model_outline import finished_name, renamed_part
from moetuned.schema.units import format_bytes

SMALLEST_HOLE_BYTES = 1 << 20
"""Holes below this may be blocks of zeros that a copying program left out."""


class Problem(msgspec.Struct, frozen=True):
    """Something wrong. `sentence` says what and what to do, and names the part.

    `kind`: missing | unfinished | unreadable | name | mixed | joined | extents | short | holes | size | content | unlisted.
    """

    kind: str
    sentence: str


class PartCheck(msgspec.Struct, frozen=True):
    """One file of a model. `size_bytes` and `header` are None when it is missing or has no readable header."""

    path: str
    size_bytes: int | None
    header: Header | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


class ModelCheck(msgspec.Struct, frozen=True):
    """All parts in order, and what is wrong with all of them together."""

    parts: tuple[PartCheck, ...]
    problems: tuple[Problem, ...] = ()


def check_model(path: str) -> ModelCheck:
    """Check the model of which `path` is any part: its parts, their headers, and that every tensor lies inside its file."""
    directory, name = os.path.split(os.path.abspath(path))
    names = named_parts(name)
    present = _listing(directory)
    parts = [_check_part(directory, index, names, present) for index in range(len(names))]
    readable = [
        None
        if one.header is None or one.size_bytes is None
        else Part(os.path.basename(one.path), one.size_bytes, one.header)
        for one in parts
    ]
    together: list[Problem] = []
    for found in wrong_parts(readable):
        problem = Problem(found.kind, found.sentence)
        if found.index is None:
            together.append(problem)
        elif not any(one.kind in ("joined", "unfinished") for one in parts[found.index].problems):
            parts[found.index] = _with(parts[found.index], problem)
    return ModelCheck(tuple(parts), tuple(together))


def named_parts(name: str) -> tuple[str, ...]:
    """File names of all parts of the model of which `name` is one; a part that is still downloading stands for its later name."""
    later = part_names(finished_name(name))
    return later if len(later) > 1 else (name,)


def hole_problem(part: PartCheck) -> Problem | None:
    """Stretches of a part that were never written, which read as zeros: the sign of an unfinished download.

    Only where tensors lie, and only from `SMALLEST_HOLE_BYTES` on. None too where the file system does not tell.
    """
    header = part.header
    if header is None or part.size_bytes is None:
        return None
    missing, first = 0, None
    try:
        descriptor = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            end = min(part.size_bytes, header.promised_bytes)
            at = header.data_offset
            while at < end and (hole := os.lseek(descriptor, at, os.SEEK_HOLE)) < end:
                at = _data_after(descriptor, hole, end)
                if at - hole >= SMALLEST_HOLE_BYTES:
                    missing += at - hole
                    first = hole if first is None else first
        finally:
            os.close(descriptor)
    except OSError:
        return None
    if first is None:
        return None
    tensor = next((t for t in header.tensors if t.offset + (t.size_bytes or 0) > first), None)
    where = "" if tensor is None else f", first in the tensor {tensor.name!r}"
    return Problem(
        "holes",
        f"{os.path.basename(part.path)} has {format_bytes(missing)} that were never written and read as zeros{where}: it is still "
        "downloading or was cut off; finish or repeat the download",
    )


def _data_after(descriptor: int, hole: int, end: int) -> int:
    try:
        return min(end, os.lseek(descriptor, hole, os.SEEK_DATA))
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole up to the end of the file
            return end
        raise


def _listing(directory: str) -> set[str] | None:
    try:
        return set(os.listdir(directory))
    except OSError:
        return None  # a directory may be searchable without being readable


def _check_part(directory: str, index: int, names: tuple[str, ...], present: set[str] | None) -> PartCheck:
    name = names[index]
    path = os.path.join(directory, name)
    if not os.path.lexists(path):
        siblings = (present or set()) | (set(names) - {name})
        kind = "unfinished" if any(mark in siblings for mark in unfinished_marks(name)) else "missing"
        sentence = (
            renamed_part(directory, names, index, present or ()) if kind == "missing" and len(names) > 1 else None
        )
        sentence = sentence or missing_part(names, siblings)
        sentence = sentence or f"part {name} is missing; download it into the same directory"
        return PartCheck(path, None, None, (Problem(kind, sentence),))
    problems = _unfinished(name, present)
    try:
        header, size_bytes = read_header(path)
    except ModelFileError as error:
        size = os.path.getsize(path) if os.path.exists(path) else None
        return PartCheck(path, size, None, (*problems, Problem("unreadable", f"{name}: {error.sentence}")))
    joined, notes = _behind(path, header, size_bytes)
    return PartCheck(path, size_bytes, header, (*problems, *joined), notes)


def _unfinished(name: str, present: set[str] | None) -> tuple[Problem, ...]:
    """aria2 gives a file its full size at once and keeps a file of its own beside it until all of it is there."""
    mark = f"{name}.aria2"
    if mark not in (present or ()):
        return ()
    return (
        Problem(
            "unfinished",
            f"{name} is still downloading: {mark} is beside it; let the download finish, or remove {mark} if it is left over",
        ),
    )


def _behind(path: str, header: Header, size_bytes: int) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """What lies behind the last tensor: another file, if parts were joined with cat."""
    name = os.path.basename(path)
    end = -(-header.promised_bytes // header.alignment) * header.alignment
    strange = [tensor for tensor in header.tensors if tensor.size_bytes is None]
    if strange:
        others = f" (and {len(strange) - 1} more)" if len(strange) > 1 else ""
        note = (
            f"{name}: the tensor {strange[0].name!r}{others} has the unknown type {strange[0].type_code}, so where it ends could "
            "not be checked; only a SHA-256 tells whether all of it is there"
        )
        return (), (note,)
    if size_bytes <= end:
        return (), ()
    for offset in sorted({end, header.promised_bytes}):
        if _magic_at(path, offset):
            sentence = (
                f"{name}: another GGUF file begins at byte {offset}: parts were joined with cat, which llama.cpp cannot load; "
                "download the parts again and name the first one, or join them with llama-gguf-split --merge"
            )
            return (Problem("joined", sentence),), ()
    return (), (f"{name}: {size_bytes - end} bytes lie behind its last tensor; llama.cpp does not read them",)


def _magic_at(path: str, offset: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.pread(descriptor, 4, offset) == b"GGUF"
        finally:
            os.close(descriptor)
    except OSError:
        return False


def _with(part: PartCheck, problem: Problem) -> PartCheck:
    return msgspec.structs.replace(part, problems=(*part.problems, problem))
