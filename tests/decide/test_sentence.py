"""The verdict as a sentence a person understands."""

from __future__ import annotations

import itertools

import pytest

from moetuned.decide.sentence import sentence
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

GIB = 1 << 30
NOW = 1000.0
SIGNALS = {
    "process_read_bytes_per_second": 455e6,
    "tokens_per_second": 1.25,
    "resident_ratio": 0.38,
}
TIGHT = MemoryView(limit_bytes=8 * GIB, headroom_bytes=GIB // 4)


def say(
    phase: Phase, paging: Paging = Paging.UNKNOWN, memory: MemoryState = MemoryState.OK, view=TIGHT, signals=SIGNALS
):
    verdict = Verdict(
        "glm", NOW, phase=phase, paging=paging, memory=memory, paging_since=NOW - 12, memory_since=NOW - 3
    )
    return sentence(verdict, signals, view, NOW)


@pytest.mark.parametrize(
    ("phase", "paging", "expected"),
    [
        (Phase.ABSENT, Paging.UNKNOWN, "is not running"),
        (Phase.LOADING, Paging.COLD, "is loading its model, reads 455 MB/s"),
        (Phase.IDLE, Paging.STEADY, "is idle; the experts it uses are in memory, 1.2 tokens/s"),
        (
            Phase.DECODE,
            Paging.THRASHING,
            "is thrashing for 12 s: it reads the same bytes again and again, reads 455 MB/s, 1.2 tokens/s",
        ),
        (
            Phase.DECODE,
            Paging.STREAMING,
            "is answering and streams experts from disk at the expected cost, reads 455 MB/s, 1.2 tokens/s",
        ),
        (Phase.PREFILL, Paging.WARMING, "is reading a prompt and is warming up, reads 455 MB/s, 38 % of the model in memory"),
        (Phase.IDLE, Paging.UNKNOWN, "is idle; whether it thrashes cannot be told yet"),
    ],
)  # fmt: skip
def test_what_it_does(phase: Phase, paging: Paging, expected: str) -> None:
    assert say(phase, paging) == expected


def test_memory_comes_first() -> None:
    view = MemoryView(limit_bytes=8 * GIB, headroom_bytes=GIB // 4, seconds_to_limit=25.0)
    text = say(Phase.DECODE, Paging.STEADY, MemoryState.NEAR_LIMIT, view)
    assert text.startswith(
        "memory is close to its limit for 3.0 s (256 MiB of 8.0 GiB left, full in about 25 s); is answering"
    )
    assert "at its limit" in say(Phase.DECODE, Paging.STEADY, MemoryState.CRITICAL)


def test_why_it_is_away() -> None:
    absent = Verdict("glm", NOW, phase=Phase.ABSENT)
    assert sentence(absent, {}, MemoryView(), NOW, "is being restarted") == "is being restarted"
    idle = Verdict("glm", NOW, phase=Phase.IDLE, paging=Paging.STEADY)
    assert "restarted" not in sentence(idle, {}, MemoryView(), NOW, "is being restarted")


@pytest.mark.parametrize(
    ("phase", "paging", "memory"), list(itertools.product(Phase, Paging, MemoryState)), ids=lambda each: each.value
)
def test_nothing_known_is_still_a_sentence(phase: Phase, paging: Paging, memory: MemoryState) -> None:
    text = say(phase, paging, memory, MemoryView(), {})
    assert "None" not in text
    assert not text.endswith(".")
    assert text == text.strip()
    assert "\n" not in text
