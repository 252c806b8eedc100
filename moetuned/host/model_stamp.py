"""Says whether a model file still is the one that something was learned of: sizes, modification times, a hash of all headers.

The headers are the tensors' names, types and places and the whole vocabulary: some megabytes, whatever the model's size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from moetuned.gguf.header import MAX_HEADER_BYTES
from moetuned.host.model_files import ModelFile, ModelFileError
from moetuned.host.own_sha256 import PIECE_BYTES, Digest, sha256
from moetuned.schema.heat import ModelStamp


def model_stamp(model: ModelFile) -> ModelStamp:
    """The stamp of the files as they are now (about 2 ms for a megabyte of header that is cached).

    Raises ModelFileError when a part cannot be read, is no longer the size that `model` was read with, or changes meanwhile.
    """
    return stamp_of(model.identity.paths, [header.header_bytes for header in model.headers], model.part_bytes)


def stamp_of(paths: Sequence[str], header_bytes: Sequence[int], part_bytes: Sequence[int]) -> ModelStamp:
    """The same of files (all parts in order) whose headers and sizes are known. Raises ModelFileError."""
    modified_ns = []
    digest = sha256()
    for path, length, size in zip(paths, header_bytes, part_bytes, strict=True):
        try:
            modified_ns.append(_add_part(digest, path, min(length, MAX_HEADER_BYTES), size))
        except OSError as error:
            raise ModelFileError(path, f"cannot be read: {error.strerror or error}") from error
    return ModelStamp(tuple(part_bytes), tuple(modified_ns), digest.hexdigest())


def _add_part(digest: Digest, path: str, header_bytes: int, size_bytes: int) -> int:
    """Hash one header; returns the file's modification time."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or before.st_size != size_bytes:
            raise ModelFileError(path, f"is not the file it was: it has {before.st_size} bytes, not {size_bytes}")
        # The length too, so that where one part's header ends and the next begins is part of the hash.
        digest.update(header_bytes.to_bytes(8, "little"))
        at = 0
        while at < header_bytes:
            chunk = os.pread(descriptor, min(PIECE_BYTES, header_bytes - at), at)
            if not chunk:
                raise ModelFileError(path, "became shorter while it was read")
            digest.update(chunk)
            at += len(chunk)
        after = os.fstat(descriptor)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise ModelFileError(path, "is being written; wait until that is done")
        return before.st_mtime_ns
    finally:
        os.close(descriptor)
