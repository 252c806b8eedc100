"""What dear looks may cost: one budget of CPU time for all of them, a share of a core over an hour.

A bucket: it fills evenly, holds an hour's worth at most, and begins full, so that the looks after a start need not wait. A look that
costs more than is left is done and paid back: what it will cost is known only afterwards.
"""

from __future__ import annotations

import msgspec

SHARE = 0.005
"""Of one core. A look for backends costs 3 us a process each five seconds; 2,000 processes are 0.12 %."""
PERIOD_SECONDS = 3600.0


class ProbeBudget(msgspec.Struct, frozen=True):
    """`left_seconds` of CPU time at `at_seconds` (monotonic); negative: what is still to be paid back. `spent`: by kind, since the start."""

    left_seconds: float
    at_seconds: float
    share: float = SHARE
    spent: dict[str, float] = {}


def full(at_seconds: float, share: float = SHARE) -> ProbeBudget:
    """An unspent one."""
    return ProbeBudget(share * PERIOD_SECONDS, at_seconds, share)


def left_seconds(budget: ProbeBudget, now: float) -> float:
    """CPU time that may be spent at `now`."""
    filled = budget.left_seconds + budget.share * max(0.0, now - budget.at_seconds)
    return min(budget.share * PERIOD_SECONDS, filled)


def may_look(budget: ProbeBudget, now: float) -> bool:
    """Whether anything is left."""
    return left_seconds(budget, now) > 0.0


def charge(budget: ProbeBudget, kind: str, cpu_seconds: float, now: float, *, counts: bool = True) -> ProbeBudget:
    """After a look that took `cpu_seconds`. `counts` False: it is told in `spent` and has a limit of its own."""
    cpu_seconds = max(0.0, cpu_seconds)
    left = left_seconds(budget, now) - (cpu_seconds if counts else 0.0)
    spent = {**budget.spent, kind: budget.spent.get(kind, 0.0) + cpu_seconds}
    return ProbeBudget(left, max(now, budget.at_seconds), budget.share, spent)
