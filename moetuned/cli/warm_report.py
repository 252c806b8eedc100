"""What came of warming, by whichever way: as JSON, and as the one or two lines that `moetunectl warm` prints. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from moetuned.cli.model_residency import Look
from moetuned.cli.residency_view import change_line, wrapped
from moetuned.schema.units import format_bytes, format_duration, format_rate

EXIT_NO = 1
EXIT_REFUSED = 4
EXIT_INTERRUPTED = 130
_CODES = {"done": 0, "nothing": 0, "refused": EXIT_REFUSED, "interrupted": EXIT_INTERRUPTED}


class Outcome(msgspec.Struct, frozen=True):
    """`state`: done | nothing (it was warm, or all the room is taken by it) | refused (memory is near its limit) | interrupted |
    failed. `detail` is a sentence without the model's path; bytes are of the model, each counted once.
    """

    state: str
    detail: str
    done_bytes: int = 0
    goal_bytes: int = 0
    seconds: float | None = None
    budget_bytes: int | None = None


class ResidentNow(msgspec.Struct, frozen=True):
    """Bytes in memory; experts and other None when the layout is unknown."""

    resident_bytes: int
    expert_resident_bytes: int | None
    other_resident_bytes: int | None


class WarmReport(msgspec.Struct, frozen=True):
    """The documented JSON of `moetunectl warm`, bytes. `by`: daemon | here. `charged_to`: a cgroup's directory, None for none.

    `before` and `after` are None where `unknown` says why residency is not known.
    """

    model: str
    by: str
    backend: str | None
    charged_to: str | None
    state: str
    detail: str
    done_bytes: int
    goal_bytes: int
    budget_bytes: int | None
    seconds: float | None
    before: ResidentNow | None
    after: ResidentNow | None
    unknown: str | None
    notes: tuple[str, ...] = ()


def exit_code(outcome: Outcome) -> int:
    """What the command ends with."""
    return _CODES.get(outcome.state, EXIT_NO)


def resident_now(look: Look) -> ResidentNow | None:
    """A look as the report has it."""
    resident, experts = look.resident_bytes, look.expert_resident_bytes
    return None if resident is None else ResidentNow(resident, experts, None if experts is None else resident - experts)


def lines(
    model: str, outcome: Outcome, before: Look, after: Look, notes: Sequence[str] = (), width: int = 80
) -> tuple[str, ...]:
    """For people, at most `width` columns wide: what was done, what is in memory now, and notes."""
    done = format_bytes(outcome.done_bytes)
    match outcome.state:
        case "done":
            what = f"warmed {done}{_speed(outcome)}: {outcome.detail}"
        case "interrupted":
            what = f"interrupted after {done} of {format_bytes(outcome.goal_bytes)}: {outcome.detail}"
        case "nothing":
            what = f"nothing to do: {outcome.detail}"
        case _ if outcome.done_bytes:
            what = f"stopped after {done} of {format_bytes(outcome.goal_bytes)}: {outcome.detail}"
        case _:
            what = f"not warmed: {outcome.detail}"
    below = (change_line(before, after), *notes)
    return (
        *wrapped(f"{os.path.basename(model)}: {what}", width),
        *(line for text in below for line in wrapped(text, width, inside=True)),
    )


def _speed(outcome: Outcome) -> str:
    if not outcome.seconds:
        return ""
    return f" in {format_duration(outcome.seconds)} ({format_rate(outcome.done_bytes / outcome.seconds)})"
