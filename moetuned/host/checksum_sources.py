"""Where the SHA-256 that a model file should have can be read on this machine: lists beside it, and what downloaders keep.

Asked in this order, and the first that names the file counts: FILE.sha256, a list for the whole model or directory, a saved answer
of the Hugging Face Hub, the metadata of `hf download --local-dir` (.cache/huggingface/download), the Hub's cache, whose large
files are named by their SHA-256.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import msgspec

from moetuned.gguf.split_files import split_name
from moetuned.parse.checksum_list import (
    Checksum,
    ChecksumListError,
    find_checksum,
    is_sha256,
    parse_checksums,
    parse_download_metadata,
)

LIMIT_BYTES = 16 << 20
_ENDINGS = (".sha256", ".sha256sum", ".sha256.txt")
_DIRECTORY_LISTS = (
    "SHA256SUMS", "SHA256SUMS.txt", "sha256sums", "sha256sums.txt", "sha256sum.txt", "SHA256SUM", "checksums.sha256",
    "CHECKSUMS", "CHECKSUMS.txt", "checksums.txt",
)  # fmt: skip
_MANIFESTS = ("manifest.json", "huggingface.json", "model_info.json")
_MOST_ANCESTORS = 6


class Expected(msgspec.Struct, frozen=True):
    """What a file should be, and the file that says so."""

    sha256: str
    size_bytes: int | None
    source: str


class SourceError(Exception):
    """A list cannot be used. The message begins with its path."""


def read_list(path: str) -> tuple[Checksum, ...]:
    """The sums of the list at `path`. Raises SourceError."""
    try:
        return parse_checksums(_read(path))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except ChecksumListError as error:
        raise SourceError(f"{path}: {error}") from error


def expected_of(path: str, checksums: tuple[Checksum, ...], source: str) -> Expected | None:
    """What the list `source`, already read, says of the file at `path`. Raises SourceError."""
    try:
        found = find_checksum(checksums, path)
    except ChecksumListError as error:
        raise SourceError(f"{source}: {error}") from error
    return None if found is None else Expected(found.sha256, found.size_bytes, source)


def find_expected(path: str) -> tuple[Expected | None, tuple[str, ...]]:
    """What is said beside the file at `path` of it, and a sentence for each list there that could not be used."""
    notes: list[str] = []
    for source in _lists(path):
        try:
            found = expected_of(path, read_list(source), source)
        except SourceError as error:
            notes.append(str(error))
            continue
        if found is not None:
            return found, tuple(notes)
    return _download_metadata(path) or _hub_blob(path), tuple(notes)


def _lists(path: str) -> Iterator[str]:
    """Lists there are, nearest first."""
    directory, name = os.path.split(path)
    split = split_name(name)
    stems = [name] if split is None else [name, f"{split.prefix}.gguf", split.prefix]
    if split is None and name.endswith(".gguf"):
        stems.append(name.removesuffix(".gguf"))
    candidates = [stem + ending for stem in stems for ending in _ENDINGS]
    candidates += [*_DIRECTORY_LISTS, f"{name}.json", *_MANIFESTS]
    yield from (whole for one in candidates if os.path.isfile(whole := os.path.join(directory, one)))


def _download_metadata(path: str) -> Expected | None:
    inside = os.path.basename(path)
    directory = os.path.dirname(path)
    for _ in range(_MOST_ANCESTORS):
        source = os.path.join(directory, ".cache", "huggingface", "download", f"{inside}.metadata")
        try:
            digest = parse_download_metadata(_read(source))
        except OSError:
            digest = None
        if digest is not None:
            return Expected(digest, None, source)
        directory, last = os.path.split(directory)
        if not last:
            break
        inside = os.path.join(last, inside)
    return None


def _hub_blob(path: str) -> Expected | None:
    real = os.path.realpath(path)
    directory, name = os.path.split(real)
    if os.path.basename(directory) != "blobs" or not is_sha256(name):
        return None
    return Expected(name.lower(), None, f"its name in the Hugging Face cache, {real}")


def _read(path: str) -> str:
    """Text of a regular file of at most `LIMIT_BYTES`. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "no regular file", path)
        raw = file.read(LIMIT_BYTES + 1)
    if len(raw) > LIMIT_BYTES:
        raise OSError(0, f"longer than {LIMIT_BYTES >> 20} MiB, no list of sums", path)
    return raw.decode("utf-8", "surrogateescape")
