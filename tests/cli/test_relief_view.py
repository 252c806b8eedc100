"""The text of `moetunectl relief plan`."""

from __future__ import annotations

import pytest

from moetuned.cli.relief_view import render
from moetuned.schema.relief import ReliefPlan, ReliefPlans, ReliefStep, StepName

GIB = 1 << 30
STEPS = (
    ReliefStep(
        StepName.STOP_WARMING, "stop warming the model", 0, restart=False, why_not="frees nothing: it is not warmed now"
    ),
    ReliefStep(StepName.SHRINK_PROMPT_CACHE, "prompt cache 2048 -> 256 MiB", GIB, GIB // 2),
    ReliefStep(StepName.FEWER_CHECKPOINTS, "context checkpoints 8 -> 2 a slot", 0, 0),
    ReliefStep(StepName.ONE_SLOT, "one slot", why_not="its command does not set it: no {slots}"),
    ReliefStep(StepName.SHORTER_CONTEXT, "context 32768 -> 8192", 3 * GIB, 3 * GIB),
)
PLAN = ReliefPlan(
    "glm", "observe", "near_limit", "restart it", GIB, 2 * GIB, 3 * GIB, 2 * GIB, STEPS, 4 * GIB, restart=True,
    restart_seconds=130.0, restart_source="390 GiB at 3 GB/s", reports=("release protection: freed 1.0 GiB",),
)  # fmt: skip


def text(*plans: ReliefPlan, width: int = 120, colour: bool = False) -> str:
    return render(ReliefPlans(plans), width, colour)


def test_every_step_with_its_bytes_or_its_reason() -> None:
    assert text(PLAN).splitlines() == [
        "glm: restart it",
        "  memory: near_limit, headroom 1.0 GiB, near its limit below 2.0 GiB, relief restores 3.0 GiB: 2.0 GiB missing",
        "  skip  stop warming the model: frees nothing: it is not warmed now",
        "  take  prompt cache 2048 -> 256 MiB (frees up to 1.0 GiB, surely 512 MiB, needs a restart)",
        "  take  context checkpoints 8 -> 2 a slot: frees nothing now, and cannot grow so far any more",
        "  skip  one slot: its command does not set it: no {slots}",
        "  take  context 32768 -> 8192 (frees 3.0 GiB, needs a restart)",
        "  one restart for all of it takes about 2 min 10 s (390 GiB at 3 GB/s)",
        "  relief.mode is observe: moetuned only says this and restarts nothing",
        "  before: release protection: freed 1.0 GiB",
    ]


def test_what_is_unknown_is_said() -> None:
    unknown = ReliefPlan("glm", "act", "unknown", "nothing", restart=True, restart_source="its model is not known")
    assert text(unknown).splitlines()[1:] == [
        "  memory: unknown",
        "  one restart for all of it; how long that takes is unknown: its model is not known",
    ]
    assert "no backend" in text()


@pytest.mark.parametrize("width", [20, 40, 60])
def test_lines_are_wrapped_and_clean(width: int) -> None:
    evil = ReliefPlan("glm\x1b[2J", "act", "ok", "nothing " * 30, steps=STEPS)
    lines = text(evil, PLAN, width=width).splitlines()
    assert max(map(len, lines)) <= max(width, 40)
    assert not any("\x1b" in line for line in lines)
    assert "\x1b[" in text(PLAN, colour=True)


def test_what_would_be_given_back_is_said() -> None:
    plan = ReliefPlan("glm", "act", "ok", "nothing", grow_back="would give back context 8192 -> 16384 when it is idle")
    assert text(plan).splitlines()[2] == "  would give back context 8192 -> 16384 when it is idle"
