"""A model as far as its headers tell, also one that is not here yet: still downloading, or only its first bytes.

For what is to be run, `model_files.read_model` demands every byte; a question asked before the download needs none of the
tensors.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import msgspec

from moetuned.gguf.experts import ExpertMap, expert_map
from moetuned.gguf.header import GgufError, Header, Value
from moetuned.gguf.split_files import Part, missing_part, part_names, unfinished_marks, wrong_part
from moetuned.host.model_files import ModelFileError, read_header

_UNFINISHED = unfinished_marks("")
_BLOCK_BYTES = 512
_MOST_LOOKED_AT = 64


class ModelOutline(msgspec.Struct, frozen=True):
    """A model by its headers. `part_bytes`: how long each part is or will be; `present_bytes`: what is on the disk."""

    paths: tuple[str, ...]
    headers: tuple[Header, ...]
    part_bytes: tuple[int, ...]
    present_bytes: int
    experts: ExpertMap

    @property
    def size_bytes(self) -> int:
        """All parts together."""
        return sum(self.part_bytes)

    @property
    def whole(self) -> bool:
        """Whether every byte is here (a sparse file's holes are not)."""
        return self.present_bytes >= self.size_bytes


def read_outline(path: str) -> ModelOutline:
    """The model of which `path` is any part. Raises ModelFileError when a header is missing, damaged or of another model,
    or tensors are of an unknown type.
    """
    path = os.path.abspath(path)
    directory, name = os.path.split(path)
    names = part_names(finished_name(name))
    paths = _present(path, directory, names) if len(names) > 1 else (path,)
    headers, sizes = [], []
    for one in paths:
        header, size = _header(path, one)
        headers.append(header)
        sizes.append(max(size, header.promised_bytes))
    parts = [Part(*each) for each in zip(names, sizes, headers, strict=True)]
    wrong = wrong_part(parts)
    if wrong is not None:
        raise ModelFileError(path, wrong)
    try:
        experts = expert_map(headers, sizes)
    except GgufError as error:
        raise ModelFileError(path, str(error)) from error
    present = sum(min(_on_disk(one), size) for one, size in zip(paths, sizes, strict=True))
    return ModelOutline(paths, tuple(headers), tuple(sizes), present, experts)


def finished_name(name: str) -> str:
    """The name a file will have when its download is done."""
    return next((name.removesuffix(ending) for ending in _UNFINISHED if name.endswith(ending)), name)


def renamed_part(directory: str, names: Sequence[str], index: int, siblings: Collection[str]) -> str | None:
    """One sentence when another GGUF file of the directory is by its header the missing part `index` of the model of `names`.

    Its headers say so: number and count of parts, and the number of tensors that the parts at hand promise.
    """
    others = sorted(name for name in siblings if name.endswith(".gguf") and name not in names)[:_MOST_LOOKED_AT]
    known = next((_split_keys(directory, name) for name in names if name in siblings), None)
    if known is None:
        return None
    for name in others:
        found = _split_keys(directory, name)
        if found is not None and found[0] == index and found[1:] == known[1:]:
            return (
                f"part {names[index]} (of {len(names)} parts) is missing, but {name} is by its header part {index + 1} of such a "
                "model; if it was renamed, give it its old name back"
            )
    return None


def _split_keys(directory: str, name: str) -> tuple[Value | None, ...] | None:
    try:
        header, _ = read_header(os.path.join(directory, name))
    except ModelFileError:
        return None
    return tuple(header.metadata.get(key) for key in ("split.no", "split.count", "split.tensors.count"))


def _present(asked: str, directory: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of all parts, whatever a download in progress calls them."""
    try:
        siblings = set(os.listdir(directory))
    except OSError:
        return tuple(os.path.join(directory, name) for name in names)
    found: list[str] = []
    for index, name in enumerate(names):
        there = next((each for each in (name, *(name + ending for ending in _UNFINISHED)) if each in siblings), None)
        if there is None:
            sentence = renamed_part(directory, names, index, siblings)
            sentence = sentence or missing_part(names, siblings | set(found)) or f"part {name} is missing"
            raise ModelFileError(asked, f"{sentence}; its header (the first megabytes) would do for an estimate")
        found.append(there)
    return tuple(os.path.join(directory, name) for name in found)


def _header(asked: str, path: str) -> tuple[Header, int]:
    try:
        return read_header(path)
    except ModelFileError as error:
        about = "" if path == asked else f"part {os.path.basename(path)}: "
        more = "; its first megabytes would do for an estimate" if "inside its own header" in error.sentence else ""
        raise ModelFileError(asked, f"{about}{error.sentence}{more}") from error


def _on_disk(path: str) -> int:
    """Bytes that are really there. File systems round up, and compressing ones hold more than they store."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    stored = status.st_blocks * _BLOCK_BYTES
    return status.st_size if stored * 2 >= status.st_size else stored
