"""Lists of SHA-256 sums: sha256sum's own format, BSD's, a bare sum, and the JSON of the Hugging Face Hub.

Sources: GNU coreutils manual, "md5sum invocation" (binary mark, escaped names), FreeBSD sha256(1) (`SHA256 (name) = sum`), Hub API
`GET /api/models/ID?blobs=true` (`siblings[].rfilename`, `lfs.sha256`) and `/api/models/ID/tree/main` (`[].path`, `lfs.oid`), and the
metadata that `huggingface_hub` keeps beside a download (three lines: commit, etag, time; the etag of a large file is its SHA-256).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

_SUM = re.compile(r"[0-9a-fA-F]{64}")
_GNU = re.compile(r"(\\?)([0-9a-fA-F]{64})(?: [ *]|\t| )(.+)")
_BSD = re.compile(r"(\\?)SHA256 \((.+)\) = ([0-9a-fA-F]{64})")
_OTHER = re.compile(r"\\?(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{56}|[0-9a-fA-F]{96}|[0-9a-fA-F]{128})\s+\S.*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Checksum(msgspec.Struct, frozen=True):
    """What a list says of one file. `name` may have directories; None: the list is one bare sum. `sha256` is lower case."""

    name: str | None
    sha256: str
    size_bytes: int | None = None


class ChecksumListError(Exception):
    """The text is no list of SHA-256 sums; the message is one sentence without the file's name."""


class _Lfs(msgspec.Struct):
    oid: str | None = None
    sha256: str | None = None
    size: int | None = None


class _HubFile(msgspec.Struct):
    path: str | None = None
    rfilename: str | None = None
    lfs: _Lfs | None = None


class _HubModel(msgspec.Struct):
    siblings: list[_HubFile]


def parse_checksums(text: str) -> tuple[Checksum, ...]:
    """All SHA-256 sums of a list in any of the formats. Raises ChecksumListError."""
    return _parse_json(text) if text.lstrip()[:1] in ("{", "[") else _parse_lines(text)


def parse_download_metadata(text: str) -> str | None:
    """The SHA-256 in the metadata that huggingface_hub keeps of a downloaded file; None when it holds none."""
    lines = text.splitlines()
    if len(lines) < 2 or not _COMMIT.fullmatch(lines[0]) or not _SUM.fullmatch(lines[1]):
        return None
    return lines[1].lower()


def is_sha256(text: str) -> bool:
    """Whether `text` is a SHA-256 sum in hex."""
    return _SUM.fullmatch(text) is not None


def find_checksum(checksums: Sequence[Checksum], path: str) -> Checksum | None:
    """The entry for the file at `path`: the one whose name shares most of the path's end, at least the file's name.

    Among several such, the one with the fewest other directories. A list of one bare sum is for any file. Raises ChecksumListError when entries contradict each other.
    """
    if len(checksums) == 1 and checksums[0].name is None:
        return checksums[0]
    best: list[Checksum] = []
    most = (0, 0)
    for one in checksums:
        common = _common_end(one.name or "", path)
        rank = (common, common - len(_components(one.name or "")))
        if common and (not best or rank > most):
            best, most = [one], rank
        elif common and rank == most:
            best.append(one)
    if len({one.sha256 for one in best}) > 1:
        names = ", ".join(repr(one.name) for one in best[:3])
        raise ChecksumListError(f"says different things of {path.rpartition('/')[2]} ({names})")
    return best[0] if best else None


def _common_end(name: str, path: str) -> int:
    """How many components at the end of both are equal."""
    count = 0
    for ours, theirs in zip(reversed(_components(name)), reversed(_components(path)), strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def _components(path: str) -> list[str]:
    return [one for one in path.split("/") if one not in ("", ".")]


def _parse_lines(text: str) -> tuple[Checksum, ...]:
    found: list[Checksum] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if gnu := _GNU.fullmatch(line):
            found.append(Checksum(_unescaped(gnu[1], gnu[3]), gnu[2].lower()))
        elif bsd := _BSD.fullmatch(line):
            found.append(Checksum(_unescaped(bsd[1], bsd[2]), bsd[3].lower()))
        elif _SUM.fullmatch(line.strip()):
            found.append(Checksum(None, line.strip().lower()))
        elif _OTHER.fullmatch(line):
            raise ChecksumListError(f"line {number} is a sum of another kind than SHA-256; make a list with sha256sum")
        else:
            raise ChecksumListError(
                f"line {number} is no line of sha256sum (64 hex digits, two spaces, the file's name): {line[:60]!r}"
            )
    if not found:
        raise ChecksumListError("holds no sums")
    if len(found) > 1 and any(one.name is None for one in found):
        raise ChecksumListError("holds several sums, and not all of them have a file's name")
    return tuple(found)


def _unescaped(mark: str, name: str) -> str:
    if not mark:
        return name
    return _ESCAPED.sub(lambda match: {"n": "\n", "r": "\r"}.get(match[1], match[1]), name)


def _parse_json(text: str) -> tuple[Checksum, ...]:
    try:
        files = (
            msgspec.json.decode(text, type=list[_HubFile])
            if text.lstrip()[0] == "["
            else msgspec.json.decode(text, type=_HubModel).siblings
        )
    except (msgspec.DecodeError, RecursionError) as error:
        raise ChecksumListError(
            f"is no answer of the Hugging Face Hub's API (/api/models/ID?blobs=true or /tree/main): {error}"
        ) from error
    found: list[Checksum] = []
    for one in files:
        name = one.path or one.rfilename
        digest = None if one.lfs is None else one.lfs.sha256 or one.lfs.oid
        if name and one.lfs is not None and digest and _SUM.fullmatch(digest):
            found.append(Checksum(name, digest.lower(), one.lfs.size))
    if not found:
        raise ChecksumListError("names no SHA-256; ask the Hugging Face Hub's API with ?blobs=true")
    return tuple(found)
