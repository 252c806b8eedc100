"""How far an interrupted `moetunectl verify` got, so that the next one goes on from there.

Kept only while a verification is unfinished: one that ends removes it, so a later one reads everything afresh (a disk that loses
bits changes no time stamp). What is said of a file counts only while device, inode, size and both times are as they were.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence

import msgspec

from moetuned.host.durable_file import make_private_directory, read_private
from moetuned.host.file_hash import FileStamp
from moetuned.host.sha256_state import BLOCK_BYTES, HashState

_LIMIT_BYTES = 4 << 20
_VERSION = 1


class PartState(msgspec.Struct, frozen=True):
    """One file: `sha256` once all of it was read, else `state` as far as it was."""

    stamp: FileStamp
    state: HashState | None = None
    sha256: str | None = None


class VerifyState(msgspec.Struct, frozen=True):
    """All files, by path (bytes that are no UTF-8 escaped). `began_at` is Unix time of the run that began it."""

    version: int
    began_at: float
    parts: dict[str, PartState]


def default_state_path(parts: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Where the state of these files is kept: in $XDG_CACHE_HOME/moetuned or ~/.cache/moetuned; None without either."""
    cache = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # relative ones are ignored (XDG Base Directory Specification)
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        cache = os.path.join(home, ".cache")
    key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return os.path.join(cache, "moetuned", f"verify-{key}.json")


def load_state(path: str) -> VerifyState | None:
    """What is kept; None when there is nothing. Raises OSError, ValueError (with a sentence) for what is no state."""
    raw = read_private(path, _LIMIT_BYTES)
    if not raw:
        return None
    try:
        state = msgspec.json.decode(raw, type=VerifyState)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no state of moetunectl verify: {error}") from error
    if state.version != _VERSION:
        raise ValueError(f"{path} is of another version of moetunectl verify")
    return state


def usable(state: VerifyState | None, path: str, stamp: FileStamp) -> PartState | None:
    """What `state` says of the file at `path`, if it is still that file and what is said makes sense."""
    found = None if state is None else state.parts.get(_key(path))
    if found is None or found.stamp != stamp:
        return None
    if found.sha256 is not None:
        return found if _is_hex(found.sha256) else None
    at = found.state
    if at is None or not _is_hex(at.words) or not 0 < at.done_bytes <= stamp.size_bytes or at.done_bytes % BLOCK_BYTES:
        return None
    return found


def save_state(path: str, began_at: float, parts: dict[str, PartState]) -> None:
    """Replace the state as a whole, so that it is never half written. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(
                msgspec.json.encode(VerifyState(_VERSION, began_at, {_key(one): part for one, part in parts.items()}))
            )
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def prepare_directory(path: str) -> None:
    """Make the directory of the default state path. Raises OSError."""
    make_private_directory(os.path.dirname(path))


def remove_state(path: str) -> None:
    """Remove the state; no error when there is none or it cannot be removed."""
    try:
        os.unlink(path)
    except OSError:
        return


def _key(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_hex(text: str) -> bool:
    return len(text) == 64 and all(one in "0123456789abcdef" for one in text)
