"""How a service that was just started is doing: up, still starting, or one that ends as soon as it is started."""

from __future__ import annotations

from enum import StrEnum

from moetuned.parse.unit_status import UnitStatus

STAYS_SECONDS = 5.0
"""How long its process must have run to be called up: one with a flag or file that it does not like has ended by then."""
_EXITED, _KILLED, _DUMPED = 1, 2, 3
"""As waitid(2) says it (CLD_EXITED, CLD_KILLED, CLD_DUMPED)."""


class UnitStart(StrEnum):
    """`up` says nothing of a model that it is still loading."""

    UP = "up"
    STARTING = "starting"
    FAILED = "failed"


def judge_start(status: UnitStatus, first: UnitStatus, now_seconds: float) -> UnitStart:
    """`first`: what it was when it was looked at first; `now_seconds`: of CLOCK_MONOTONIC.

    Failed is also one that waits to be started again by systemd, or was since (Restart= of systemd.service(5)), and one that just ended.
    """
    if (
        status.active_state == "failed"
        or status.sub_state.startswith("auto-restart")
        or status.restarts > first.restarts
    ):
        return UnitStart.FAILED
    if status.active_state == "inactive" and not status.job:
        return UnitStart.FAILED
    if status.active_state not in ("active", "reloading"):
        return UnitStart.STARTING
    ran_seconds = STAYS_SECONDS if status.main_started_at is None else now_seconds - status.main_started_at / 1e6
    return UnitStart.UP if ran_seconds >= STAYS_SECONDS else UnitStart.STARTING


def end_words(status: UnitStatus) -> str:
    """How its process ended last, for people."""
    if status.main_code in (_KILLED, _DUMPED) and status.main_status:
        return f"signal {status.main_status} ended it"
    if status.main_code == _EXITED and status.main_status is not None:
        return f"it ended with code {status.main_status}"
    return f"systemd says {status.result or status.active_state}"
