"""Warming without the daemon: the plan, the warming process, and watching over memory while it runs."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from moetuned.cli.model_residency import Look
from moetuned.cli.warm_report import Outcome
from moetuned.decide import warm_plan
from moetuned.decide.warm_room import Room, free_under, room, taken
from moetuned.gguf.experts import embedding_ranges, expert_ranges, other_ranges
from moetuned.host.model_files import ModelFile
from moetuned.host.processes import ProcessIdentity
from moetuned.host.spawn import StartError
from moetuned.host.warming import Warming, WarmProgress, warm_in_cgroup
from moetuned.schema.model import ByteRange
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes

GUARD_SECONDS = 1.0
_DRAW_SECONDS = 0.25
_STOP_SECONDS = 2.0

Limits = Callable[[], tuple[MemoryView, ...]]
Draw = Callable[[int, int, str], None]
"""Called with bytes done, bytes to do and what it waits for ("" while it goes on)."""


def warm_here(
    model: ModelFile,
    before: Look,
    limits: Limits,
    join: str | None,
    budget_bytes: int | None = None,
    rate_bytes_per_second: int | None = None,
    draw: Draw = lambda _done, _goal, _waits_for: None,
    *,
    use: warm_plan.KnownUse | None = None,
    backend: ProcessIdentity | None = None,
) -> Outcome:
    """Warm what fits, and wait until it is done. `limits` says how memory is now; `join`: the cgroup to warm from.

    `use`: which experts were used, where that is known. `backend` comes first: warming pauses while it reads.

    Ctrl-C ends the warming process and is an outcome; whatever else is raised ends it, too.
    """
    residency = before.residency()
    at_first = limits()
    there = room(at_first, None if residency is None else residency.resident_bytes, budget_bytes)
    against = _against(there)
    if against is not None:
        return Outcome("refused" if there.near is not None else "failed", against, budget_bytes=there.budget_bytes)
    plan = plan_for(model, there.budget_bytes or 0, before, use)
    if plan.total_bytes == 0:
        # Reading the header alone brings some of it in, so what is there is no sign that it was warm.
        whole = residency is not None and residency.resident_bytes >= model.identity.size_bytes
        return Outcome(
            "nothing" if whole or there.budget_bytes else "failed", plan.reason, budget_bytes=there.budget_bytes
        )
    try:
        warming = warm_in_cgroup(
            model.identity.paths,
            plan.ranges,
            plan.twice,
            cgroup_directory=join,
            rate_bytes_per_second=rate_bytes_per_second,
            backend=backend,
        )
    except StartError as error:
        return Outcome("failed", str(error), budget_bytes=there.budget_bytes)
    began = time.monotonic()
    state, detail = "failed", plan.reason
    try:
        # Where memory is full already, the plan fills none.
        stopped = _follow(warming, limits, free_under(at_first), draw)
        progress = warming.progress
        if stopped is not None:
            state, detail = stopped
        elif progress.state == "done":
            state = "done"
        else:
            detail = progress.error or progress.detail or "the warming process was stopped"
    except KeyboardInterrupt:
        progress = _end(warming)
        state = "interrupted"
    finally:
        warming.kill()
    seconds = time.monotonic() - began
    return Outcome(state, detail, progress.done_bytes, progress.goal_bytes, seconds, there.budget_bytes)


def plan_for(
    model: ModelFile, budget_bytes: int, before: Look, use: warm_plan.KnownUse | None = None
) -> warm_plan.WarmPlan:
    """What to touch; an unknown layout is only warmed whole."""
    size, experts = model.identity.size_bytes, model.experts
    if experts is not None:
        return warm_plan.plan(
            other_ranges(experts),
            expert_ranges(experts),
            embedding_ranges(experts),
            size,
            budget_bytes,
            before.residency(),
            use,
        )
    everything = tuple(ByteRange(part, 0, length) for part, length in enumerate(model.part_bytes))
    if size <= budget_bytes:
        return warm_plan.plan(everything, (), (), size, budget_bytes, before.residency())
    reason = (
        f"which of its bytes are experts is unknown ({model.identity.unknown}), and the whole ({format_bytes(size)}) does "
        f"not fit into {format_bytes(budget_bytes)}"
    )
    return warm_plan.WarmPlan((), (), 0, reason)


def _against(there: Room) -> str | None:
    if there.near is not None:
        return there.near
    if there.budget_bytes is None:
        return "how much memory there is could not be read, so nothing is warmed"
    return None


def _follow(warming: Warming, limits: Limits, to_fill: frozenset[str], draw: Draw) -> tuple[str, str] | None:
    """Until it has ended; state and sentence when it had to stop because memory came near its limit, or the room was taken.

    `to_fill`: scopes of the limits under which memory was free.
    """
    poll = select.poll()
    poll.register(warming.fileno(), select.POLLIN)
    looked_at = time.monotonic()
    against: tuple[str, str] | None = None
    while True:
        poll.poll(_DRAW_SECONDS * 1000)
        progress = warming.advance()
        draw(progress.done_bytes, progress.goal_bytes, progress.detail or "" if progress.state == "paused" else "")
        if not progress.going_on:
            return against
        if against is None and time.monotonic() - looked_at >= GUARD_SECONDS:
            looked_at = time.monotonic()
            against = _stop_reason(limits(), to_fill)
            if against is not None:
                warming.stop()


def _stop_reason(now: tuple[MemoryView, ...], to_fill: frozenset[str]) -> tuple[str, str] | None:
    near = room(now, None).near
    if near is not None:
        return "refused", near
    why = taken(now, to_fill)
    return None if why is None else ("failed", why)


def _end(warming: Warming) -> WarmProgress:
    """Have it stop after the piece it is at, and how far it came."""
    warming.stop()
    until = time.monotonic() + _STOP_SECONDS
    while warming.progress.going_on and (left := until - time.monotonic()) > 0:
        select.select([warming], [], [], left)
        warming.advance()
    warming.kill()
    return warming.progress
