"""What people are told that relief would do."""

from __future__ import annotations

import msgspec
import pytest
from test_relief import FACTS, JUDGED, MEMORY, SETTINGS, verdict

from moetuned.decide import relief
from moetuned.decide.relief_plan import relief_plan
from moetuned.schema.relief import ReliefPlan, StepName
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.verdict import MemoryState, Paging


def plan(
    memory: MemoryState = MemoryState.CRITICAL,
    view: MemoryView = MEMORY,
    state: relief.ReliefState | None = None,
    **facts,
) -> ReliefPlan:
    known = msgspec.structs.replace(FACTS, **facts)
    return relief_plan(state or relief.ReliefState(looks=1), verdict(memory), view, known, JUDGED, 1000.0, ("earlier",))


def test_it_says_what_would_be_done_now() -> None:
    found = plan(restart_seconds=60.0, restart_source="as its last load")
    assert found.decision.startswith("restart it now: headroom 100 MiB: restart with context 32768 ->")
    assert (found.mode, found.memory, found.restart, found.restart_seconds) == ("act", "critical", True, 60.0)
    assert found.missing_bytes == SETTINGS.target_headroom_bytes - (100 << 20)
    assert [step.name for step in found.steps] == list(StepName)
    assert found.reports == ("earlier",)


def test_own_steps_are_said_before_the_restart() -> None:
    assert plan(locked_bytes=64 << 20).decision.startswith("release protection now; restart it now")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory": MemoryState.OK}, "nothing: memory is ok, 100 MiB are left"),
        ({"view": MemoryView(unknown="no meminfo")}, "nothing: the headroom is not known (no meminfo)"),
        ({"ready": False}, "the backend is not ready"),
        ({"state": relief.ReliefState(restarting=True)}, "is being restarted"),
        ({"state": relief.ReliefState(restarting=True), "draining": True}, "waits for requests to end"),
        ({"supervised": False}, "do it yourself"),
        ({"context_changeable": False, "prompt_cache_mib": 0}, "nothing: no step that is left"),
        (
            {"state": relief.ReliefState(exhausted=True), "context_changeable": False, "prompt_cache_mib": 0},
            "nothing: no step",
        ),
        ({"state": relief.ReliefState(restarted_at=(990.0, 995.0), looks=1)}, "cool-down"),
    ],
)
def test_why_it_would_do_nothing(changes: dict, said: str) -> None:
    assert said in plan(**changes).decision


def test_for_a_thrash_with_memory_left_it_says_what_it_is_good_for() -> None:
    found = msgspec.structs.replace(verdict(MemoryState.OK), paging=Paging.THRASHING)
    said = relief_plan(relief.ReliefState(), found, MEMORY, FACTS, JUDGED, 1000.0, ()).decision
    assert "not on a thrash" in said


def test_asking_changes_nothing() -> None:
    state = relief.ReliefState()
    assert plan(state=state) == plan(state=state)
    assert state == relief.ReliefState()
