"""How much of a model is in the page cache, part by part: what `moetunectl residency`, `warm` and `evict` look at.

Looking changes nothing that is resident. It belongs to the calling thread and takes from microseconds to 25 ms a GiB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from moetuned.gguf.experts import expert_ranges
from moetuned.host.block_devices import under_file
from moetuned.host.expert_residency import ExpertScan
from moetuned.host.file_hash import FileStamp, stamp_of
from moetuned.host.model_files import ModelFile
from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan, mincore
from moetuned.schema.heat import ExpertPages
from moetuned.schema.model import ByteRange
from moetuned.schema.sample import Residency

PIECE_SECONDS = 0.05
IN_MEMORY = ("tmpfs", "ramfs")
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs")
_REPLACED = "it was replaced or written while it was looked at; wait until whatever writes it is done, then look again"


class PartResidency(msgspec.Struct, frozen=True):
    """One file of a model, bytes. Experts None: which bytes are experts is unknown."""

    path: str
    size_bytes: int
    resident_bytes: int
    expert_size_bytes: int | None
    expert_resident_bytes: int | None


class Look(msgspec.Struct, frozen=True):
    """Residency of all parts, in order; `unknown` says in one sentence why there are none.

    `refused`: the kernel does not tell this user. `by`: "cachestat" or "mincore".
    """

    parts: tuple[PartResidency, ...] = ()
    unknown: str | None = None
    refused: bool = False
    by: str | None = None

    @property
    def resident_bytes(self) -> int | None:
        """Of all parts; None when unknown."""
        return None if self.unknown is not None else sum(part.resident_bytes for part in self.parts)

    @property
    def expert_resident_bytes(self) -> int | None:
        """Of all experts; None when unknown."""
        return _sum([part.expert_resident_bytes for part in self.parts]) if self.unknown is None else None

    @property
    def expert_size_bytes(self) -> int | None:
        """Bytes of all experts; None when unknown."""
        return _sum([part.expert_size_bytes for part in self.parts]) if self.unknown is None else None

    def residency(self) -> Residency | None:
        """The same as the daemon has it; None when unknown."""
        resident, experts = self.resident_bytes, self.expert_resident_bytes
        if resident is None:
            return None
        return Residency(resident, experts, None if experts is None else resident - experts)


Follow = Callable[[str], None]
"""Called every now and then with the name of the file that is looked at."""


def look_at(model: ModelFile, follow: Follow = lambda _name: None) -> Look:
    """Count the resident pages of all parts. What cannot be known is unknown with a reason; never raises OSError."""
    paths = model.identity.paths
    try:
        before = stamps_of(paths)
        sizes = tuple(stamp.size_bytes for stamp in before)
        if sizes != model.part_bytes:
            return Look(unknown=f"{paths[0]}: {_REPLACED}")
        refusal = _refusal(paths)
        if refusal is not None:
            return Look(unknown=refusal, refused=True)
        found = _look(model, follow)
        if found.unknown is None and stamps_of(paths) != before:
            return Look(unknown=f"{paths[0]}: {_REPLACED}")
    except OSError as error:
        unknown = f"{error.filename or paths[0]}: {error.strerror or error}"
        return Look(unknown=unknown, refused=isinstance(error, PermissionError))
    return found


def stamps_of(paths: Sequence[str]) -> tuple[FileStamp, ...]:
    """What tells that the files are still the same. Raises OSError."""
    return tuple(stamp_of(path) for path in paths)


def look_at_experts(model: ModelFile, follow: Follow = lambda _name: None) -> ExpertPages | str:
    """Pages of each expert, or one sentence why they are unknown; never raises OSError."""
    if model.experts is None:
        return f"which bytes are experts is unknown: {model.identity.unknown}"
    paths = model.identity.paths
    scan = ExpertScan(paths, model.experts)
    try:
        before = stamps_of(paths)
        while not scan.advance(PIECE_SECONDS):
            follow(os.path.basename(paths[0]))
        if stamps_of(paths) != before:
            return f"{paths[0]}: {_REPLACED}"
    except OSError as error:
        return f"{error.filename or paths[0]}: {error.strerror or error}"
    finally:
        scan.close()
    return scan.result if scan.result is not None else scan.unknown or "it was not looked at"


def _refusal(paths: Sequence[str]) -> str | None:
    """Why the kernel does not tell this user: mincore would say that all is resident, which is never taken for an answer."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            mincore(descriptor, 0, 1)
        except PermissionError:
            return f"{path}: the kernel tells what is in memory only to who owns the file or may write it; run this with sudo"
        finally:
            os.close(descriptor)
    return None


def _look(model: ModelFile, follow: Follow) -> Look:
    experts = None if model.experts is None else expert_ranges(model.experts)
    parts, by = [], "cachestat"
    for part, (path, size) in enumerate(zip(model.identity.paths, model.part_bytes, strict=True)):
        own = None if experts is None else [ByteRange(0, one.offset, one.length) for one in experts if one.part == part]
        scan = ResidencyScan([path], own)
        try:
            while not scan.advance(PIECE_SECONDS):
                follow(os.path.basename(path))
        finally:
            scan.close()
        if scan.result is None:
            return Look(unknown=scan.unknown)
        if scan.result.evicted is None:
            by = "mincore"
        parts.append(_part(path, size, own, scan.result.cached, scan.result.expert_cached))
    return Look(tuple(parts), by=by)


def _part(
    path: str, size: int, experts: list[ByteRange] | None, cached: int, expert_cached: int | None
) -> PartResidency:
    """Bytes from pages: those that experts share with the rest and the last one of a file are no whole pages of either."""
    expert_size = None if experts is None else sum(one.length for one in experts)
    if cached * PAGE_BYTES >= size:
        return PartResidency(path, size, size, expert_size, expert_size)
    if expert_size is None or expert_cached is None:
        return PartResidency(path, size, cached * PAGE_BYTES, None, None)
    expert_resident = min(expert_cached * PAGE_BYTES, expert_size)
    other_resident = min((cached - expert_cached) * PAGE_BYTES, size - expert_size)
    return PartResidency(path, size, expert_resident + other_resident, expert_size, expert_resident)


def filesystem_of(model: ModelFile) -> str | None:
    """Name of the file system that the first part is on, as in /proc/self/mountinfo; None when unknown."""
    return under_file(model.identity.paths[0]).filesystem


def cache_notes(filesystem: str | None) -> tuple[str, ...]:
    """What the page cache says, and does not say, of files on this file system."""
    if filesystem is None:
        return ()
    if filesystem == "zfs":
        kept = "on ZFS what is read is kept in its own cache (ARC), not in the page cache: only mapped pages are counted here"
        return (f"{kept}, and what is missing may be in memory all the same",)
    if filesystem in IN_MEMORY:
        return (f"on {filesystem} the file itself is memory; there is nothing to warm or to evict",)
    if filesystem in _NETWORK or filesystem.startswith("fuse"):
        return (
            f"on {filesystem} only this machine's own page cache is counted, not what a server or another program keeps for it",
        )
    if filesystem == "overlay":
        return ("on an overlay file system pages are counted with mincore, which does not know what was evicted",)
    return ()


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
