from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.unit_start import STAYS_SECONDS, UnitStart, end_words, judge_start
from moetuned.parse.unit_status import UnitStatus

UP = UnitStatus(
    "a.service", "loaded", "active", "success", main_pid=7, main_started_at=100_000_000, sub_state="running"
)
OLD = 100 + STAYS_SECONDS


@pytest.mark.parametrize(
    ("change", "now_seconds", "judged"),
    [
        ({}, OLD, UnitStart.UP),
        ({}, OLD - 0.1, UnitStart.STARTING),
        ({"main_started_at": None}, 0.0, UnitStart.UP),
        ({"active_state": "activating", "sub_state": "start"}, OLD, UnitStart.STARTING),
        ({"active_state": "activating", "sub_state": "auto-restart"}, OLD, UnitStart.FAILED),
        ({"active_state": "activating", "sub_state": "auto-restart-queued"}, OLD, UnitStart.FAILED),
        ({"restarts": 1}, OLD, UnitStart.FAILED),
        ({"active_state": "failed"}, OLD, UnitStart.FAILED),
        ({"active_state": "inactive"}, OLD, UnitStart.FAILED),
        ({"active_state": "inactive", "job": True}, OLD, UnitStart.STARTING),
        ({"active_state": "deactivating"}, OLD, UnitStart.STARTING),
    ],
)
def test_how_it_is_doing(change: dict[str, Any], now_seconds: float, judged: UnitStart) -> None:
    assert judge_start(msgspec.structs.replace(UP, **change), UP, now_seconds) is judged


def test_restarts_of_long_ago_are_no_failure() -> None:
    first = msgspec.structs.replace(UP, restarts=3)
    assert judge_start(first, first, OLD) is UnitStart.UP


@given(
    st.sampled_from(["active", "reloading", "activating", "deactivating", "inactive", "failed", "maintenance"]),
    st.sampled_from(["running", "auto-restart", "dead", ""]),
    st.none() | st.integers(1, 1 << 40),
    st.integers(0, 3),
    st.floats(0, 1e6),
)
def test_up_is_only_what_is_active_and_stayed(
    active: str, sub: str, started: int | None, restarts: int, now_seconds: float
) -> None:
    status = UnitStatus("a.service", "loaded", active, "", sub_state=sub, main_started_at=started, restarts=restarts)
    if judge_start(status, UP, now_seconds) is UnitStart.UP:
        assert active in ("active", "reloading")
        assert restarts == 0
        assert started is None or now_seconds >= started / 1e6 + STAYS_SECONDS


def test_how_it_ended() -> None:
    assert end_words(msgspec.structs.replace(UP, main_code=1, main_status=203)) == "it ended with code 203"
    assert end_words(msgspec.structs.replace(UP, main_code=2, main_status=9)) == "signal 9 ended it"
    assert end_words(msgspec.structs.replace(UP, result="resources")) == "systemd says resources"
