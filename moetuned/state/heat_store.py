"""What was learned of the use of experts, kept over reboots: one file a model in /var/lib/moetuned/heat.

A file is replaced as a whole and flushed to the disk, so there is the old one or the new one. It is only used for the very files it was
learned of; what is damaged, of another version or of another model is as if nothing were known, and the next save replaces it.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Sequence

import msgspec

from moetuned.host.durable_file import make_private_directory, read_private, remove_durably, write_durably
from moetuned.host.own_sha256 import sha256
from moetuned.schema.heat import Heat, ModelStamp

DIRECTORY = "/var/lib/moetuned/heat"
LIMIT_BYTES = 8 << 20
"""Of one file: `MOST_CELLS` cells of up to 5 bytes and the rest."""
MOST_CELLS = 1 << 20
MOST_FILES = 64
"""Above it the oldest of models that are gone are removed (a model of 15,000 cells takes 45 kB)."""
OTHER_FILE = "what was learned is of another file of that name"
OTHER_SHAPE = "what was learned is of a model of another shape"
_MAGIC = b"moetuned heat 1\n"
_CHECKSUM_BYTES = 4
_NAME = re.compile(r"[0-9a-f]{32}\.heat")
_TEMPORARY = re.compile(r"[0-9a-f]{32}\.heat\.\d{1,10}\.new")
_MOST_LISTED = 4096


class _Kept(msgspec.Struct, frozen=True):
    """A file's content. `paths`: to see later whether the model is still there."""

    paths: tuple[bytes, ...]
    heat: Heat


def file_name(paths: Sequence[str]) -> str:
    """The file of the model at these paths (all parts in order), whatever lies there now."""
    return sha256(b"\0".join(map(os.fsencode, paths))).hexdigest()[:32] + ".heat"


def load(
    paths: Sequence[str], model: ModelStamp, shape: tuple[int, int], directory: str = DIRECTORY
) -> tuple[Heat | None, str | None]:
    """What is known of this model of `shape` (layers, experts), else None and one sentence why what is kept is not used (None: nothing
    is kept); never raises.
    """
    path = os.path.join(directory, file_name(paths))
    try:
        raw = read_private(path, LIMIT_BYTES)
    except OSError as error:
        why = str(error) if error.strerror is None else f"{path}: {error.strerror}"
        return None, f"what was learned of its experts cannot be read: {why}"
    if not raw and not os.path.lexists(path):
        return None, None
    kept = _decode(raw)
    if kept is None:
        return None, f"{path} is damaged, so nothing is known of its experts; it will be replaced"
    heat = kept.heat
    if heat.model != model:
        return None, OTHER_FILE
    if (heat.layers, heat.experts) != shape:
        return None, OTHER_SHAPE
    return heat, None


def save(
    paths: Sequence[str],
    heat: Heat,
    wall_seconds: float,
    *,
    restore_interrupted: bool,
    directory: str = DIRECTORY,
) -> bool:
    """Keep what is known at `wall_seconds` (Unix time); False when there is nothing to keep, or it must not be.

    `restore_interrupted`: memory was being filled with what was used before and that did not end; looks at such a moment know less than
    what is kept (PostgreSQL's autoprewarm has the same rule). Raises OSError when it cannot be written; what was kept stays then.
    """
    path = os.path.join(directory, file_name(paths))
    if restore_interrupted:
        return False
    if not any(heat.last_used) and not heat.stayed and not os.path.lexists(path):
        return False
    heat = msgspec.structs.replace(heat, saved_wall_seconds=wall_seconds)
    if not _is_sound(heat):
        raise ValueError("a heat whose cells contradict its shape")
    body = msgspec.msgpack.encode(_Kept(tuple(map(os.fsencode, paths)), heat))
    make_private_directory(directory)
    temporary = f"{path}.{os.getpid()}.new"
    try:
        write_durably(temporary, _MAGIC + zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") + body, 0)
        remove_durably(temporary, keep_as=path)
    except OSError:
        _remove(temporary)
        raise
    return True


def remove_old(directory: str = DIRECTORY, most: int = MOST_FILES) -> tuple[str, ...]:
    """Remove what unfinished saves left, and of files above `most` the oldest whose models are gone (or that are damaged).

    Names that were removed. What cannot be looked at or removed stays.
    """
    try:
        names = sorted(os.listdir(directory))[:_MOST_LISTED]
    except OSError:
        return ()
    mine = f".{os.getpid()}.new"
    removed = [
        name
        for name in names
        if _TEMPORARY.fullmatch(name) and not name.endswith(mine) and _remove(os.path.join(directory, name))
    ]
    kept = [name for name in names if _NAME.fullmatch(name)]
    excess = len(kept) - most
    for name in sorted(kept, key=lambda one: _modified(os.path.join(directory, one))) if excess > 0 else ():
        path = os.path.join(directory, name)
        if excess > 0 and _is_gone(path) and _remove(path):
            removed.append(name)
            excess -= 1
    return tuple(removed)


def _decode(raw: bytes) -> _Kept | None:
    """None for anything that `save` did not write."""
    if not raw.startswith(_MAGIC):
        return None
    checksum, body = raw[len(_MAGIC) :][:_CHECKSUM_BYTES], raw[len(_MAGIC) + _CHECKSUM_BYTES :]
    if zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        return None
    try:
        kept = msgspec.msgpack.decode(body, type=_Kept)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return kept if _is_sound(kept.heat) else None


def _is_sound(heat: Heat) -> bool:
    cells = heat.layers * heat.experts
    return (
        heat.layers > 0
        and heat.experts > 0
        and cells == len(heat.last_used) <= MOST_CELLS
        and 0 <= heat.look < 1 << 53
        and all(0 <= last <= heat.look for last in heat.last_used)
        and math.isfinite(heat.saved_wall_seconds)
    )


def _is_gone(path: str) -> bool:
    """Whether the first part of the model is not there any more; a model that cannot be looked at (not mounted) counts as gone."""
    try:
        kept = _decode(read_private(path, LIMIT_BYTES))
    except OSError:
        return False
    if kept is None or not kept.paths:
        return True
    return not os.path.exists(kept.paths[0])


def _modified(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return math.inf


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
