"""What must hold of every run of the matrix, as plain data in and sentences out: one for each thing that was violated."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from relief_asker import COMPLETE, CUT_OFF, REFUSED, Outcome

RELIEF_SECONDS = 5.0
"""What may be lost between memory near its limit and a healthy backend besides its load and the drain."""
SLACK_SECONDS = 2.0
"""Restarts are seen when the new process is there: the drain before one may have been shorter than before the other."""
DRAIN_SECONDS = 30.0
"""`relief.drain`, unless the config says something else."""
UNSEEN_SECONDS = 0.3
"""A moment without any request that is shorter may lie between two looks."""
_UNFINISHED = re.compile(
    r"(\d+|one|no) (?:unfinished )?(?:requests?|answers?)\b[^.;]*\b(?:cut off|unfinished|given up|lost)"
)
_OPEN = re.compile(r"not known: no more than (\d+) connections? (?:was|were) open")
_WORDS = {"no": 0, "one": 1}


@dataclass(frozen=True)
class Said:
    """An event of the daemon; `at` in monotonic seconds."""

    at: float
    name: str
    backend: str | None
    message: str = ""


@dataclass
class BackendRun:
    """One backend of a run. Times are monotonic seconds; `lives`: pid, first and last seen; `load_seconds`: its load alone.

    `waits`: times at which the daemon said that it does nothing unless memory goes on growing: its limit is far yet.
    """

    name: str
    minimum: int
    load_seconds: float
    lives: list[tuple[int, float, float]] = field(default_factory=list)
    doubles: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    healthy: list[tuple[float, bool]] = field(default_factory=list)
    contexts: list[tuple[float, int]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def count(self, kind: str) -> int:
        return sum(one.kind == kind for one in self.outcomes)

    @property
    def restarts(self) -> int:
        return max(0, len(self.lives) - 1)


@dataclass
class Run:
    """One run of one scenario. `restarts_allowed`: of all its backends together; `relief_due`: memory must have been relieved.

    `oom_kill_is_fault`: relief exists for what the scenario does. `strict` False: faults are injected, so that neither how soon memory
    is relieved nor how often is of interest. `left`: what was still there when all had been ended.
    """

    scenario: str
    limit_bytes: int
    cool_down_seconds: float
    backends: list[BackendRun]
    events: list[Said] = field(default_factory=list)
    oom_kills: int = 0
    oom_kill_times: list[float] = field(default_factory=list)
    failures: int = 0
    most_bytes: int = 0
    restarts_allowed: int | None = None
    relief_due: bool = False
    oom_kill_is_fault: bool = True
    strict: bool = True
    daemon_code: int | None = 0
    unasked_deaths: list[int] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def named(self, name: str, backend: str) -> list[Said]:
        return [one for one in self.events if one.name == name and one.backend == backend]


def violations(run: Run) -> list[str]:
    """One sentence each; [] when the run was as it must be."""
    found = list(run.problems)
    if run.oom_kills and run.oom_kill_is_fault:
        found.append(f"{run.oom_kills} OOM kills")
    if run.unasked_deaths:
        found.append(f"the daemon died by itself, codes {run.unasked_deaths}")
    if run.daemon_code != 0:
        found.append(f"the daemon did not end in order: {'killed' if run.daemon_code is None else run.daemon_code}")
    found += [f"left behind: {what}" for what in run.left]
    restarts = sum(backend.restarts for backend in run.backends)
    if run.restarts_allowed is not None and restarts > run.restarts_allowed:
        found.append(f"{restarts} restarts, at most {run.restarts_allowed} were of use")
    if run.relief_due and not any(one.name == "backend_restarted" for one in run.events):
        found.append("memory was never relieved: no backend_restarted")
    for backend in run.backends:
        found += [f"{backend.name}: {what}" for what in _of_backend(run, backend)]
    return found


def _of_backend(run: Run, backend: BackendRun) -> list[str]:
    found = []
    if backend.doubles:
        found.append(f"two processes at once: {backend.doubles[0][1]}")
    low = [context for _, context in backend.contexts if context < backend.minimum]
    if low:
        found.append(f"a context of {min(low)}, the minimum is {backend.minimum}")
    if run.strict:
        found += [*_too_late(run, backend), *_too_soon(run, backend), *_miscounted(run, backend)]
    return found


def drain_seconds(backend: BackendRun, near: float, ended: float) -> float:
    """How long the end of its process was held up by requests: those that were under way when memory came near its limit, and those
    that came so soon after them that no look saw a moment without any; new ones are taken while a restart waits. `DRAIN_SECONDS` at most.
    """
    until = near
    for one in sorted(backend.outcomes, key=lambda each: each.begun):
        if one.kind != REFUSED and one.begun <= until + UNSEEN_SECONDS:
            until = max(until, one.ended)
    return max(0.0, min(until, ended, near + DRAIN_SECONDS) - near)


@dataclass(frozen=True)
class Relieved:
    """A restart for memory, in seconds: from the alarm, and from when it was due, to healthy again; and what is allowed from then on."""

    from_alarm: float
    from_due: float
    allowed: float


def relieved(run: Run, backend: BackendRun) -> list[Relieved]:
    """Every restart of it for memory. Due: the limit is near, no growth far from it, and no cool-down goes on."""
    found, free_again = [], 0.0
    nears = run.named("memory_near_limit", backend.name)
    for restarted in run.named("backend_restarted", backend.name):
        began = max((first for _, first, _ in backend.lives if first <= restarted.at), default=restarted.at)
        ended = max((last for _, _, last in backend.lives if last < began), default=began)
        healthy = next((at for at, well in backend.healthy if well and began <= at), restarted.at)
        before = [one.at for one in nears if one.at <= restarted.at]
        if not before:
            continue
        near = max(before[-1], free_again)
        # An alarm and the decision to act may come in the same look: then the process has ended before anybody could ask.
        due = max([near, *(at for at in backend.waits if near <= at <= ended)])
        allowed = backend.load_seconds + drain_seconds(backend, due, ended) + RELIEF_SECONDS
        found.append(Relieved(healthy - near, healthy - due, allowed))
        free_again = healthy + run.cool_down_seconds
    return found


def _too_late(run: Run, backend: BackendRun) -> list[str]:
    return [
        f"healthy again {one.from_due:.1f} s after memory was near its limit, {one.allowed:.1f} s are allowed"
        for one in relieved(run, backend)
        if one.from_due > one.allowed
    ]


def _too_soon(run: Run, backend: BackendRun) -> list[str]:
    """A restart for memory within the cool-down after the one before."""
    starts = []
    for restarted in run.named("backend_restarted", backend.name):
        began = [first for _, first, _ in backend.lives if first <= restarted.at]
        starts.append(began[-1] if began else restarted.at)
    return [
        f"a second restart {later - before:.1f} s after the first, within the cool-down of {run.cool_down_seconds:g} s"
        for before, later in itertools.pairwise(starts)
        if later - before < run.cool_down_seconds - SLACK_SECONDS
    ]


def reported_unfinished(message: str) -> int | None:
    """How many requests an event says it cut off; None: it says nothing of them."""
    found = _UNFINISHED.search(message)
    if found is None:
        return None
    return _WORDS[found[1]] if found[1] in _WORDS else int(found[1])


def bounds(message: str) -> tuple[int, int] | None:
    """At least and at most how many requests an event says it cut off; None: it says nothing of them, or not how many at most."""
    count, most = reported_unfinished(message), _OPEN.search(message)
    if count is not None:
        return count, count
    return None if most is None else (0, int(most[1]))


def _miscounted(run: Run, backend: BackendRun) -> list[str]:
    """Where the daemon tells how many requests its restarts cut off, or how many at most, the clients lost as many."""
    told = [bounds(one.message) for one in run.named("backend_restarted", backend.name)]
    known = [each for each in told if each is not None]
    if not known or len(known) < backend.restarts:
        return []
    lost = [one for one in backend.outcomes if one.kind == CUT_OFF]
    least = sum(one.answered for one in lost)
    low, high = (sum(each) for each in zip(*known, strict=True))
    if least <= high and low <= len(lost):
        return []
    said = low if low == high else f"{low} to {high}"
    return [f"says that it cut off {said} requests; the clients lost {len(lost)}{_each_of(lost)}"]


def _each_of(lost: Sequence[Outcome]) -> str:
    each = "; ".join(f"{one.begun:.3f} to {one.ended:.3f} s{': ' if one.why else ''}{one.why}" for one in lost)
    return f" ({each})" if each else ""


def row(run: Run) -> list[str]:
    """The run as cells of a table."""
    outcomes = [one for backend in run.backends for one in backend.outcomes]
    times = [one for backend in run.backends for one in relieved(run, backend)]
    took = ", ".join(f"{one.from_alarm:.1f} {one.from_due:.1f}/{one.allowed:.1f}" for one in times) or "-"
    contexts = " ".join(_steps([context for _, context in backend.contexts]) for backend in run.backends)
    return [
        run.scenario,
        str(run.oom_kills),
        str(sum(backend.restarts for backend in run.backends)),
        took,
        contexts,
        "/".join(str(sum(one.kind == kind for one in outcomes)) for kind in (COMPLETE, CUT_OFF, REFUSED)),
        f"{run.most_bytes / max(1, run.limit_bytes):.0%}",
        "; ".join(violations(run)) or "ok",
    ]


HEAD = (
    "scenario",
    "OOM",
    "restarts",
    "alarm, due..healthy/allowed s",
    "context",
    "complete/cut/refused",
    "most",
    "result",
)


def _steps(values: Sequence[int]) -> str:
    changed = [value for at, value in enumerate(values) if at == 0 or value != values[at - 1]]
    return ">".join(str(value) for value in changed) or "?"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the last one as long as it is."""
    lines = [HEAD, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines
    )
