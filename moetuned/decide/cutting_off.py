"""How many requests the end of a backend cut off: what is certain of it, and what is said."""

from __future__ import annotations

from typing import NamedTuple


class CutOff(NamedTuple):
    """So many `requests`; None: not known, but no more than `most` connections were open then; None, too: nor is that."""

    requests: int | None = None
    most: int | None = None


UNKNOWN = CutOff()
NONE = CutOff(0)


def before_end(heard: CutOff, connections: int | None) -> CutOff:
    """Right before a process is told to end so many connections to it are open that are not ours; None: that is not known.

    What it said last, `heard`, is older. A connection that is kept open looks the same with and without a request, so only none is certain.
    """
    if connections is None:
        return heard if heard.requests else UNKNOWN
    if connections == 0:
        return NONE
    return heard if heard.requests is not None and 0 < heard.requests <= connections else CutOff(None, connections)


def when_ended(before: CutOff, taken: int | None) -> CutOff:
    """The same when it has ended: until it has closed its port it takes requests that it will not answer.

    `taken`: so many connections its network took since it was told to end, to whatever port; None: not known. Each may have been to it,
    also where none was open any more: what ends in parts closes connections while it still listens.
    """
    if before.requests or before == UNKNOWN or taken == 0:
        return before
    return UNKNOWN if taken is None else CutOff(None, (before.most or 0) + taken)


def words(found: CutOff) -> str:
    """The end of a sentence about a restart."""
    requests, most = found
    if requests is not None:
        return counted(requests, "request", "was cut off", "were cut off") or "no request was cut off"
    if most is None:
        return "whether a request was cut off is not known"
    what = counted(most, "connection", "was open", "were open")
    return f"whether requests were cut off in the last moment is not known: no more than {what}"


def counted(count: int, what: str, one: str, many: str) -> str:
    """Such as "1 request was cut off"; "" for none."""
    return "" if count == 0 else f"{count} {what}{'' if count == 1 else 's'} {one if count == 1 else many}"
