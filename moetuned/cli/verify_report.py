"""The report of `moetunectl verify`, put together from what the checks and the hashes found. Pure."""

from __future__ import annotations

import os

import msgspec

from moetuned.host.checksum_sources import Expected
from moetuned.host.model_check import ModelCheck, PartCheck, Problem
from moetuned.host.model_hash import HashOutcome
from moetuned.parse.checksum_list import Checksum


class PartReport(msgspec.Struct, frozen=True):
    """JSON of one part.

    `content`: equal | different | not_compared (nothing says what it should be) | not_read (already known to be
    wrong). `sha256` is what was computed, if it was.
    """

    path: str
    size_bytes: int | None
    promised_bytes: int | None
    tensors: int | None
    content: str
    sha256: str | None = None
    expected_sha256: str | None = None
    expected_from: str | None = None
    problems: tuple[Problem, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """JSON of the whole. `ok` is what the exit code says; `read_bytes` and `seconds` are of this run's reading; `quick`: no
    sums were looked for; `extents_checked`: false when a tensor of unknown type may end anywhere.
    """

    ok: bool
    content_compared: bool
    model: str
    size_bytes: int
    tensors: int
    parts: tuple[PartReport, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    read_bytes: int = 0
    seconds: float = 0.0
    quick: bool = False
    extents_checked: bool = True


class GivenSums(msgspec.Struct, frozen=True):
    """What the user gave to compare with: the `sums` of the list `source`."""

    sums: tuple[Checksum, ...]
    source: str


def build_report(
    model: str,
    check: ModelCheck,
    expected: dict[str, Expected],
    given: GivenSums | None,
    outcomes: dict[str, HashOutcome],
    notes: list[str],
) -> Report:
    """Put together what was found. `expected` and `outcomes` are by path; adds to `notes`."""
    known = {one.sha256: os.path.basename(path) for path, one in expected.items()}
    known |= {one.sha256: one.name for one in (given.sums if given else ()) if one.name is not None}
    parts = tuple(
        _part_report(part, expected.get(part.path), outcomes.get(part.path), given, known, notes)
        for part in check.parts
    )
    return Report(
        ok=not check.problems and not any(part.problems for part in parts),
        content_compared=all(part.content in ("equal", "different") for part in parts),
        model=model,
        size_bytes=sum(part.size_bytes or 0 for part in check.parts),
        tensors=sum(part.tensors or 0 for part in parts),
        parts=parts,
        problems=check.problems,
        notes=tuple(notes),
        extents_checked=not any(
            tensor.size_bytes is None
            for part in check.parts
            if part.header is not None
            for tensor in part.header.tensors
        ),
    )


def _part_report(
    part: PartCheck,
    expected: Expected | None,
    outcome: HashOutcome | None,
    given: GivenSums | None,
    known: dict[str, str],
    notes: list[str],
) -> PartReport:
    name = os.path.basename(part.path)
    problems = list(part.problems)
    content = "not_read" if problems else "not_compared"
    digest = None if outcome is None else outcome.sha256
    if outcome is not None and outcome.problem is not None:
        problems.append(Problem("unreadable", f"{name} {outcome.problem}"))
        content = "not_read"
    elif digest is not None and expected is not None:
        content = "equal" if digest == expected.sha256 else "different"
        if content == "different":
            problems.append(Problem("content", _different(name, digest, expected, known)))
    elif digest is not None and given is not None:
        if digest in known:
            content = "equal"
            notes.append(f"{name} is not named in {given.source}, but it has the content of {known[digest]}")
        else:
            sentence = (
                f"{name} is not named in {given.source}, and no sum there is its own ({digest}): it is another model's or "
                "damaged; give the list that belongs to it"
            )
            problems.append(Problem("unlisted", sentence))
    return PartReport(
        path=part.path,
        size_bytes=part.size_bytes,
        promised_bytes=None if part.header is None else part.header.promised_bytes,
        tensors=None if part.header is None else len(part.header.tensors),
        content=content,
        sha256=digest,
        expected_sha256=None if expected is None else expected.sha256,
        expected_from=given.source if given is not None and content == "equal" else _source(expected),
        problems=tuple(problems),
    )


def _source(expected: Expected | None) -> str | None:
    return None if expected is None else expected.source


def _different(name: str, digest: str, expected: Expected, known: dict[str, str]) -> str:
    other = known.get(digest)
    if other is not None:
        return (
            f"{name} has the content of {other} by {expected.source}: files were swapped or renamed; give them the names they were "
            "downloaded with"
        )
    return (
        f"{name} is damaged or another version: its SHA-256 is {digest} and should be {expected.sha256} by {expected.source}; "
        "download it again"
    )
