"""States of units: how the process ended, and whether somebody stopped it. Recorded from systemd 252 where a comment says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.unit_state import (
    how_it_ended,
    is_changing,
    is_ended_on_purpose,
    is_stopped_by_owner,
    was_oom_killed,
)
from moetuned.parse.unit_status import UnitStatus


def unit(active: str, result: str = "success", **more: Any) -> UnitStatus:
    return UnitStatus("llama.service", "loaded", active, result, **more)


def test_one_that_runs_is_neither_ended_nor_stopped() -> None:
    running = unit("active", main_pid=7)
    assert (is_changing(running), how_it_ended(running), is_stopped_by_owner(running)) == (False, None, False)


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (unit("failed", "exit-code", main_code=1, main_status=1), "exited with code 1"),
        (unit("failed", "signal", main_code=2, main_status=11), "was ended by SIGSEGV"),
        (unit("failed", "signal", main_code=2, main_status=40), "was ended by signal 40"),
        (unit("failed", "core-dump", main_code=3, main_status=6), "was ended by SIGABRT with a core dump"),
        (unit("failed", "oom-kill", main_code=2, main_status=9), "was ended by the kernel's OOM killer"),
        (
            unit("failed", "exit-code", main_code=1, main_status=203),
            "could not be started: its program cannot be run (EXEC)",
        ),
        (
            unit("failed", "start-limit-hit", main_code=1, main_status=2),
            "exited with code 2, too often in a row for systemd, which starts it no more",
        ),
        (unit("failed", "start-limit-hit"), "failed, too often in a row for systemd, which starts it no more"),
        (unit("failed", "watchdog", main_code=3, main_status=6), "was ended by systemd: it did not answer its watchdog in time"),
        (unit("failed", "timeout"), "was ended by systemd: it did not start or end in time"),
        (unit("failed", "resources"), "could not be started: systemd did not get what it needs for that"),
        (unit("inactive", main_code=1, main_status=0), "exited with code 0"),
        (unit("inactive"), None),
        (unit("failed", "news-of-tomorrow"), None),
    ],
)  # fmt: skip
def test_how_it_ended(status: UnitStatus, how: str | None) -> None:
    assert how_it_ended(status) == how
    assert was_oom_killed(status) is (status.result == "oom-kill")


@pytest.mark.parametrize(
    "status",
    [
        unit("inactive"),  # never started since the boot
        unit("inactive", main_code=1, main_status=0, main_started_at=5, left_active_at=10, main_exited_at=20),  # systemctl stop
        unit("inactive", main_code=2, main_status=15, main_started_at=5, left_active_at=10, main_exited_at=20),
        unit("failed", "exit-code", main_code=1, main_status=1, main_started_at=5, left_active_at=10, main_exited_at=20),  # stopped, and failed at it
        unit("failed", "timeout", main_code=2, main_status=9, main_started_at=5, left_active_at=10, main_exited_at=90),
        UnitStatus("llama.service", "masked", "inactive", "exit-code"),
    ],
)  # fmt: skip
def test_stopped_by_its_owner(status: UnitStatus) -> None:
    assert is_stopped_by_owner(status)
    assert not is_changing(status)


@pytest.mark.parametrize(
    "status",
    [
        unit(
            "failed",
            "exit-code",
            main_code=1,
            main_status=1,
            main_started_at=5,
            left_active_at=20,
            main_exited_at=19,
        ),
        unit(
            "failed",
            "signal",
            main_code=2,
            main_status=9,
            main_started_at=5,
            left_active_at=20,
            main_exited_at=20,
        ),
        unit("failed", "oom-kill", main_code=2, main_status=9, left_active_at=10, main_exited_at=20),  # OOMPolicy=stop
        unit(
            "failed",
            "watchdog",
            main_code=2,
            main_status=6,
            main_started_at=5,
            left_active_at=10,
            main_exited_at=20,
        ),
        unit(
            "failed",
            "start-limit-hit",
            main_code=1,
            main_status=1,
            main_started_at=5,
            left_active_at=10,
            main_exited_at=20,
        ),
        unit("failed", "exit-code", main_code=1, main_status=203),  # it was never active
        # It crashed, and the start after that failed before it was active again.
        unit(
            "failed",
            "exit-code",
            main_code=1,
            main_status=203,
            main_started_at=15,
            left_active_at=10,
            main_exited_at=20,
        ),
        unit("inactive", "oom-kill", main_code=2, main_status=9),
    ],
)
def test_not_stopped_by_its_owner(status: UnitStatus) -> None:
    assert not is_stopped_by_owner(status)


@pytest.mark.parametrize(
    "status",
    [
        unit("activating", "exit-code", main_code=1, main_status=1),
        unit("activating", main_pid=7),
        unit("deactivating", main_pid=7),
        unit("inactive", job=True),  # between the two halves of a restart
    ],
)
def test_changing_is_not_stopped(status: UnitStatus) -> None:
    assert is_changing(status)
    assert not is_stopped_by_owner(status)


@pytest.mark.parametrize(
    "status",
    [
        unit("deactivating", main_pid=7, main_started_at=5, left_active_at=10, job=True),  # it takes its time
        unit("deactivating", main_code=2, main_status=15, main_started_at=5, left_active_at=10, main_exited_at=11),  # something is left of it
        unit("inactive", main_code=2, main_status=15, main_started_at=5, left_active_at=10, main_exited_at=11, job=True),  # between its halves
        unit("activating", main_pid=8, main_started_at=20, left_active_at=10, job=True),
        unit("active", main_pid=8, main_started_at=20, left_active_at=10),
        unit("activating", left_active_at=10, job=True, sub_state="start-pre"),  # ExecStartPre=
    ],
)  # fmt: skip
def test_ended_on_purpose(status: UnitStatus) -> None:
    assert is_ended_on_purpose(status)


@pytest.mark.parametrize(
    "status",
    [
        unit("active", main_pid=7, main_started_at=5),  # never ended
        unit("inactive", main_code=1, main_status=0, main_started_at=5, left_active_at=10, main_exited_at=20),  # stopped
        unit("active", main_pid=8, main_started_at=20, left_active_at=10, restarts=1),  # Restart=
        unit("activating", "exit-code", main_code=1, main_status=1, main_started_at=5, left_active_at=12, main_exited_at=11, sub_state="auto-restart"),
        unit("activating", main_code=1, main_status=0, main_started_at=5, left_active_at=12, main_exited_at=11, sub_state="auto-restart"),
        unit("deactivating", "watchdog", main_pid=7, main_started_at=5, left_active_at=10),  # systemd ends what hangs
        unit("deactivating", "oom-kill", main_started_at=5, left_active_at=10, main_exited_at=11),
        unit("deactivating", "signal", main_code=2, main_status=11, main_started_at=5, left_active_at=12, main_exited_at=11),  # ExecStopPost=
        unit("failed", "signal", main_code=2, main_status=11, main_started_at=5, left_active_at=12, main_exited_at=11),
        unit("activating", left_active_at=10, job=True, sub_state="start-pre", restarts=1),  # Restart=, and then ExecStartPre=
        unit("failed", "exit-code", left_active_at=10),  # which failed
        unit("activating", job=True, sub_state="start-pre"),  # it never ran
    ],
)  # fmt: skip
def test_not_ended_on_purpose(status: UnitStatus) -> None:
    assert not is_ended_on_purpose(status)


numbers = st.none() | st.integers(1, 100)


@given(
    st.builds(
        UnitStatus,
        name=st.just("x.service"),
        load_state=st.sampled_from(["loaded", "masked", "not-found"]),
        active_state=st.sampled_from(
            ["active", "inactive", "failed", "activating", "deactivating", "reloading", "news"]
        ),
        result=st.sampled_from(["success", "exit-code", "signal", "oom-kill", "start-limit-hit", "news", ""]),
        main_pid=numbers,
        main_code=numbers,
        main_status=numbers,
        main_started_at=numbers,
        left_active_at=numbers,
        main_exited_at=numbers,
        job=st.booleans(),
        restarts=st.integers(0, 2),
    )
)
def test_no_two_contradict(status: UnitStatus) -> None:
    assert not (is_changing(status) and is_stopped_by_owner(status))
    assert not (was_oom_killed(status) and how_it_ended(status) is None)
    assert not (is_ended_on_purpose(status) and (was_oom_killed(status) or is_stopped_by_owner(status)))
    if status.active_state == "active":
        assert not is_stopped_by_owner(status)
