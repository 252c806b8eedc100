"""Holds what a replay said against the truth that was written down when the trace was made.

Truth: `expect` (an event begins between two wall times), `never` (an event does not begin), `only_in` (it begins at no other time),
and for each axis `from`, `to`, `in`: at least nine of ten verdicts in that time are one of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

FAILS_TODAY: dict[str, str] = {}
"""Traces whose truth the detector does not meet yet, and why. A test that passes although it is named here fails."""


class Said(msgspec.Struct, frozen=True):
    """One verdict of a replay, at wall time."""

    wall: float
    axes: Mapping[str, str]
    events: Sequence[str]


def faults(truth: Mapping[str, Any], said: Sequence[Said]) -> list[str]:
    """Where they differ, one sentence each."""
    events = [(one.wall, event) for one in said for event in one.events]
    start = said[0].wall
    return [*_missing(truth, events), *_unwanted(truth, events, start), *_wrong_verdicts(truth, said, start)]


def _missing(truth: Mapping[str, Any], events: Sequence[tuple[float, str]]) -> Iterable[str]:
    for wanted in truth.get("expect", []):
        after, before = wanted["after"], wanted["before"]
        if not any(event == wanted["event"] and after <= wall <= before for wall, event in events):
            seen = [f"{wall - after:+.1f} s" for wall, event in events if event == wanted["event"]]
            yield f"{wanted['event']} not within {before - after:.0f} s (seen at {seen})"


def _unwanted(truth: Mapping[str, Any], events: Sequence[tuple[float, str]], start: float) -> Iterable[str]:
    for wall, event in events:
        if event in truth.get("never", []):
            yield f"{event} at +{wall - start:.0f} s, never expected"
    for wanted in truth.get("only_in", []):
        for wall, event in events:
            if event == wanted["event"] and not wanted["from"] <= wall <= wanted["to"]:
                yield f"{event} at +{wall - start:.0f} s, outside its time"


def _wrong_verdicts(truth: Mapping[str, Any], said: Sequence[Said], start: float) -> Iterable[str]:
    for axis in ("paging", "phase", "memory"):
        for wanted in truth.get(axis, []):
            within = [one.axes[axis] for one in said if wanted["from"] <= one.wall <= wanted["to"]]
            wrong = [value for value in within if value not in wanted["in"]]
            if len(wrong) > 0.1 * len(within) or not within:
                span = f"+{wanted['from'] - start:.0f} s to +{wanted['to'] - start:.0f} s"
                yield f"{axis} {sorted(set(wrong))} in {len(wrong)} of {len(within)}, not {wanted['in']}, {span}"
