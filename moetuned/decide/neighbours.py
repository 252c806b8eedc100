"""Who else read or grew much lately, from looks at all processes. Whoever is named was seen; nobody is guessed.

Page cache and memory of a backend in a cgroup with a limit of its own are not taken by what runs outside of it while the machine has
memory left: then only those inside are named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

READ, GREW = "read", "grew"
MOST = 3


class Person(msgspec.Struct, frozen=True):
    """A process as it is shown; `key` is the same as long as it lives. `pid` None: processes that have ended since."""

    key: tuple[int, int]
    pid: int | None
    name: str
    unit: str | None = None
    parent: int = 0
    cgroups: frozenset[str] = frozenset()


class Seen(msgspec.Struct, frozen=True):
    """One process at one look: bytes read since the look before, and anonymous memory with swap (None: not among the largest)."""

    who: Person
    read_bytes: int = 0
    anonymous_bytes: int | None = None


class Look(msgspec.Struct, frozen=True):
    """One look. `since_seconds`: the look before (monotonic), None at the first: nothing is known of reads then.

    `unseen`: processes whose reads could not be seen (not ours, or with more capabilities than we have).
    """

    at_seconds: float
    wall_seconds: float
    since_seconds: float | None
    seen: tuple[Seen, ...]
    unseen: int = 0


class Finding(msgspec.Struct, frozen=True):
    """What one process did in `seconds` until the last look."""

    who: Person
    did: str
    bytes: int
    seconds: float


def relevant(
    findings: Sequence[Finding],
    without: Collection[int],
    inside: str | None,
    least_bytes: float,
    others: Collection[int] = (),
) -> tuple[Finding, ...]:
    """At most three, largest first, of at least `least_bytes`; not the pids in `without` nor their children, but for those in `others`.

    `inside`: only those in this cgroup (its directory) or below it; None: all.
    """
    fitting = [
        one
        for one in findings
        if one.bytes >= least_bytes
        and one.who.pid not in without
        and (one.who.parent not in without or one.who.pid in others)
        and (inside is None or is_inside(one.who.cgroups, inside))
    ]
    return tuple(sorted(fitting, key=lambda one: -one.bytes)[:MOST])


def is_inside(cgroups: Collection[str], directory: str) -> bool:
    """Whether one of the paths of a process is the cgroup at `directory` or below it; a hierarchy may be mounted anywhere."""
    pieces = directory.strip("/").split("/")
    ends = {"/" + "/".join(pieces[start:]) for start in range(len(pieces))}
    return any(path in ends or any(path.startswith(f"{end}/") for end in ends) for path in cgroups)


def readers(looks: Sequence[Look], since_seconds: float) -> tuple[Finding, ...]:
    """What each process read in the looks that began after `since_seconds`, or in the last one; () when that is not known."""
    counted = [look for look in looks if look.since_seconds is not None]
    recent = [look for look in counted if (look.since_seconds or 0.0) >= since_seconds] or counted[-1:]
    if not recent:
        return ()
    began = recent[0].since_seconds or recent[0].at_seconds
    seconds = max(recent[-1].at_seconds - began, 0.0)
    people: dict[tuple[int, int], Person] = {}
    totals: dict[tuple[int, int], int] = {}
    for look in recent:
        for seen in look.seen:
            if seen.read_bytes > 0:
                people[seen.who.key] = seen.who
                totals[seen.who.key] = totals.get(seen.who.key, 0) + seen.read_bytes
    return tuple(Finding(people[key], READ, total, seconds) for key, total in totals.items())


def growers(looks: Sequence[Look], since_seconds: float) -> tuple[Finding, ...]:
    """How far each of the largest processes grew since it was smallest after `since_seconds`.

    One that was not among the largest at a look was smaller than the smallest of them, or had not been started: what was before that
    look is not known of it.
    """
    recent = [look for look in looks if look.at_seconds >= since_seconds]
    if len(recent) < 2:
        return ()
    found = []
    for seen in recent[-1].seen:
        if seen.anonymous_bytes is None:
            continue
        smallest, at = seen.anonymous_bytes, recent[-1].at_seconds
        for look in reversed(recent[:-1]):
            size, listed = _size_at(look, seen.who.key)
            if size < smallest:
                smallest, at = size, look.at_seconds
            if not listed:
                break
        if seen.anonymous_bytes > smallest:
            grew = seen.anonymous_bytes - smallest
            found.append(Finding(seen.who, GREW, grew, recent[-1].at_seconds - at))
    return tuple(found)


def _size_at(look: Look, key: tuple[int, int]) -> tuple[int, bool]:
    """Its size, and whether it was listed; else the most that it can have been."""
    sizes: Mapping[tuple[int, int], int] = {
        seen.who.key: seen.anonymous_bytes for seen in look.seen if seen.anonymous_bytes is not None
    }
    return (sizes[key], True) if key in sizes else (min(sizes.values(), default=0), False)
