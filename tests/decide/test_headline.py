"""Headlines: the order, what is about the machine, and that no state of a backend leaves somebody without words."""

from __future__ import annotations

import msgspec
import pytest
from headline_scenes import GIB, snapshot, view
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.headline import headlines, stale_seconds, worst
from moetuned.schema.headline import Headline, Severity, Situation
from moetuned.schema.snapshot import MemoryView, ResidencyView, Snapshot, TunableView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason

JARGON = ("refault", "amplification", "None", "PSI", "n_ctx", "hold time", "unreclaimable")
DRIFTED = TunableView("vm.swappiness", "yielded", "10", "60", "60")


def first(found: Snapshot) -> Headline:
    return headlines(found, found.wall_seconds)[0]


def test_worst_first() -> None:
    well = view("well", Phase.IDLE, Paging.STEADY)
    near = view("near", Phase.IDLE, Paging.STEADY, MemoryState.NEAR_LIMIT)
    thrashes = view("thrashes", Phase.DECODE, Paging.THRASHING)
    unseen = view("unseen", Phase.UNKNOWN)
    found = headlines(snapshot(well, unseen, near, thrashes, tuning=(DRIFTED,)), 1000.0)
    assert [one.backend for one in found] == ["thrashes", "near", None, "unseen", "well"]
    assert worst(found) is Severity.CRITICAL
    assert worst(found[3:]) is Severity.UNKNOWN
    assert worst(found[4:]) is Severity.OK
    assert worst(()) is Severity.UNKNOWN


def test_old_facts_are_called_old_whatever_they_say() -> None:
    old = snapshot(view("glm", Phase.DECODE, Paging.THRASHING))
    found = headlines(old, old.wall_seconds + 60)
    assert [one.situation for one in found] == [Situation.STALE, Situation.THRASHING]
    assert worst(found) is Severity.UNKNOWN
    assert stale_seconds(old, old.wall_seconds + 60) == 60
    assert stale_seconds(old, old.wall_seconds + 9) is None
    rare = msgspec.structs.replace(old, daemon=msgspec.structs.replace(old.daemon, ticks=2))
    assert stale_seconds(rare, old.wall_seconds + 60) is None, "one that looks seldom is not late"


def test_settings_that_were_changed() -> None:
    well = view("glm", Phase.IDLE, Paging.STEADY)
    for state in ("drifted", "yielded"):
        one = first(snapshot(well, tuning=(msgspec.structs.replace(DRIFTED, state=state),)))
        assert (one.severity, one.situation, one.backend) == (Severity.WARNING, Situation.DRIFTED, None)
        assert "vm.swappiness is 60 instead of 10" in one.text
        assert "sudo moetunectl tune apply" in one.advice
    for state in ("applied", "already", "skipped", "failed", "planned", "restored"):
        assert first(snapshot(well, tuning=(msgspec.structs.replace(DRIFTED, state=state),))).severity is Severity.OK
    many = tuple(msgspec.structs.replace(DRIFTED, name=f"vm.{name}") for name in "abcd")
    assert "vm.a is 60 instead of 10, vm.b is 60 instead of 10, and 2 more" in first(snapshot(well, tuning=many)).text


def test_nothing_to_watch() -> None:
    one = first(snapshot())
    assert (one.severity, one.situation) == (Severity.UNKNOWN, Situation.NO_BACKEND)
    assert "found by itself" in one.advice


REASON = st.builds(
    Reason,
    axis=st.sampled_from(("phase", "paging", "memory")),
    signal=st.sampled_from(
        ("hung", "paused", "resident_ratio", "cache_lost_ratio", "cpu_ratio", "headroom_bytes", "read_amplification", "own_swap_in_bytes_per_second")
    ),
    value=st.none() | st.floats(0, 2),
    limit=st.none() | st.floats(0, 2),
    held_seconds=st.none(),
    text=st.just("some words"),
)  # fmt: skip


@given(
    st.sampled_from(Phase),
    st.sampled_from(Paging),
    st.sampled_from(MemoryState),
    st.lists(REASON, max_size=4),
    st.sampled_from(("", "starting", "restarting", "draining", "ending", "paused", "waiting", "broken", "stopped", "idle")),
    st.booleans(),
    st.booleans(),
    st.sampled_from((None, "none", "loading", "start", "prompt_cache", "leak", "neighbour", "outside", "unknown")),
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_every_state_has_plain_words(
    phase: Phase, paging: Paging, memory: MemoryState, reasons: list[Reason], state: str, supervised: bool, known: bool,
    growth: str | None,
) -> None:  # fmt: skip
    one = view("glm", phase, paging, memory, *reasons)
    one = msgspec.structs.replace(one, state=state, supervised=supervised)
    if known:
        one = msgspec.structs.replace(
            one,
            memory=MemoryView("machine", 32 * GIB, 30 * GIB, GIB, 2 * GIB, GIB, 0, 20.0, growth_kind=growth),
            residency=ResidencyView(GIB, GIB, 0, 1.0),
            signals={
                "tokens_per_second": 1.5,
                "process_read_bytes_per_second": 2e8,
                "bytes_per_major_fault": 8e6,
                "cache_lost_ratio": 0.2,
            },
            best_tokens_per_second=9.0,
        )
    for mode in ("act", "observe"):
        told = first(snapshot(one, mode=mode))
        assert told.text.endswith(".")
        assert told.text.strip() == told.text
        assert ". ." not in told.line
        assert ".." not in told.line
        assert "  " not in told.line
        assert not any(word in told.line for word in JARGON), told.line
        assert told.severity is Severity.OK or told.advice or "moetunectl" in told.text
