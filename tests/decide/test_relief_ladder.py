"""The ladder: what each step would free, why it is skipped, and what is joined into the one restart."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import relief_ladder
from moetuned.decide.relief_ladder import Ladder, ReliefFacts
from moetuned.schema.relief import ReliefStep, StepName
from moetuned.schema.snapshot import MemoryView

GIB, MIB = 1 << 30, 1 << 20
ALL = tuple(StepName)


def cost(total: int, per_token: int, refused: str | None = None) -> relief_ladder.KvCost:
    return relief_ladder.KvCost(total, per_token, refused)


KV = relief_ladder.KvChoices(
    now=cost(4 * GIB, 65536),
    one_slot=cost(3 * GIB, 65536),
    small=cost(2 * GIB, 32768),
    one_slot_small=cost(3 * GIB // 2, 32768),
    checkpoint_bytes=100 * MIB,
)
FACTS = ReliefFacts(
    supervised=True,
    context_changeable=True,
    prompt_cache_changeable=True,
    context_length=32768,
    minimum_context=2048,
    prompt_cache_mib=2048,
    kv_bytes_per_token=65536,
    ready=True,
    slots_changeable=True,
    checkpoints_changeable=True,
    cache_type_changeable=True,
    slots=4,
    checkpoints=8,
    cache_type="f16",
    kv=KV,
    grown_bytes=0,
)


def climb(missing: int, facts: ReliefFacts = FACTS, allowed=ALL, useless=()) -> Ladder:
    memory = MemoryView(headroom_bytes=0, limit_bytes=64 * GIB)
    found = relief_ladder.climb("glm", facts, memory, missing, allowed, useless)
    assert found is not None
    return found


def step(found: Ladder, name: StepName) -> ReliefStep:
    return next(one for one in found.steps if one.name is name)


def taken(found: Ladder) -> list[StepName]:
    return [one.name for one in found.steps if one.taken]


def test_all_steps_are_told_smallest_first() -> None:
    assert [one.name for one in climb(GIB).steps] == list(StepName)


def test_what_is_locked_goes_before_any_restart() -> None:
    facts = msgspec.structs.replace(FACTS, locked_bytes=2 * GIB, warming=True)
    found = climb(GIB, facts)
    assert taken(found) == [StepName.STOP_WARMING, StepName.RELEASE_PROTECTION]
    assert found.restart is None
    assert found.own_suffices
    assert step(found, StepName.SHORTER_CONTEXT).why_not == "not needed"


def test_a_prompt_cache_that_surely_holds_enough_is_all_that_goes() -> None:
    facts = msgspec.structs.replace(FACTS, grown_bytes=8 * GIB, prompt_cache_mib=6144, checkpoints=2, slots=1)
    found = climb(GIB, facts)
    assert taken(found) == [StepName.SHRINK_PROMPT_CACHE]
    assert found.restart is not None
    assert found.restart.context_length == 32768
    assert found.restart.slots is None
    assert found.restart.prompt_cache_mib is not None
    assert found.restart.prompt_cache_mib <= 256


def test_an_empty_prompt_cache_makes_no_other_step_needless() -> None:
    found = climb(GIB // 2)
    assert taken(found) == [StepName.SHRINK_PROMPT_CACHE, StepName.ONE_SLOT]
    assert step(found, StepName.SHRINK_PROMPT_CACHE).frees_bytes == 0
    assert step(found, StepName.ONE_SLOT).sure_bytes == GIB
    assert found.restart is not None
    assert (found.restart.slots, found.restart.cache_type, found.restart.context_length) == (1, None, 32768)
    assert found.restart.frees_bytes == GIB
    assert found.restart.prompt_cache_mib == 128


def test_an_empty_prompt_cache_alone_is_no_reason_for_a_restart() -> None:
    facts = msgspec.structs.replace(
        FACTS,
        slots_changeable=False,
        cache_type_changeable=False,
        context_changeable=False,
        checkpoints_changeable=False,
    )
    found = climb(GIB, facts)
    assert found.restart is None
    assert "not worth a full read" in (step(found, StepName.SHRINK_PROMPT_CACHE).why_not or "")


def test_the_context_is_shortened_by_what_the_other_steps_leave_missing() -> None:
    found = climb(3 * GIB)
    assert taken(found)[-2:] == [StepName.QUANTISE_KV_CACHE, StepName.SHORTER_CONTEXT]
    assert found.restart is not None
    assert found.restart.cache_type == "q8_0"
    # One slot 1 GiB, q8_0 then 1.5 GiB; half a GiB is left, at 32 KiB a token.
    assert found.restart.context_length == 32768 - GIB // 2 // 32768
    assert found.restart.steps == tuple(taken(found))


@pytest.mark.parametrize(
    ("changes", "name", "why"),
    [
        ({"slots": 1}, StepName.ONE_SLOT, "it has one"),
        ({"slots_changeable": False}, StepName.ONE_SLOT, "its command does not set it: no {slots}"),
        (
            {"slots_changeable": False, "unset": {"slots": "there is no ${MOETUNED_SLOTS} in the unit a.service"}},
            StepName.ONE_SLOT,
            "there is no ${MOETUNED_SLOTS} in the unit a.service",
        ),
        ({"kv": None}, StepName.ONE_SLOT, "not known"),
        ({"kv": None}, StepName.QUANTISE_KV_CACHE, "not known"),
        ({"kv": None}, StepName.FEWER_CHECKPOINTS, "not known"),
        ({"cache_type": "q4_0"}, StepName.QUANTISE_KV_CACHE, "frees nothing: it is q4_0"),
        ({"cache_type_changeable": False}, StepName.QUANTISE_KV_CACHE, "no {cache_type}"),
        ({"checkpoints": 2}, StepName.FEWER_CHECKPOINTS, "few already"),
        ({"checkpoints": 8}, StepName.FEWER_CHECKPOINTS, "hold little now"),
        ({"checkpoints_changeable": False}, StepName.FEWER_CHECKPOINTS, "no {checkpoints}"),
        ({"prompt_cache_mib": 0}, StepName.SHRINK_PROMPT_CACHE, "it is off"),
        ({"prompt_cache_mib": None}, StepName.SHRINK_PROMPT_CACHE, "small enough"),
        ({"prompt_cache_changeable": False}, StepName.SHRINK_PROMPT_CACHE, "no {prompt_cache_mib}"),
        ({"context_length": 2048}, StepName.SHORTER_CONTEXT, "2048 tokens are the least allowed"),
        ({"context_changeable": False}, StepName.SHORTER_CONTEXT, "no {context}"),
        ({"kv": None, "kv_bytes_per_token": 0}, StepName.SHORTER_CONTEXT, "does not grow with the context"),
        ({"locked_bytes": 0}, StepName.RELEASE_PROTECTION, "nothing is locked"),
        ({"warming": False}, StepName.STOP_WARMING, "not warmed now"),
    ],
)
def test_a_skipped_step_says_why(changes: dict, name: StepName, why: str) -> None:
    found = climb(8 * GIB, msgspec.structs.replace(FACTS, **changes))
    assert why in (step(found, name).why_not or "")


def test_a_type_that_llama_cpp_refuses_is_not_taken() -> None:
    refused = msgspec.structs.replace(KV, one_slot_small=cost(GIB, 32768, "llama.cpp refuses V of type q8_0"))
    found = climb(3 * GIB, msgspec.structs.replace(FACTS, kv=refused))
    assert step(found, StepName.QUANTISE_KV_CACHE).why_not == "llama.cpp refuses V of type q8_0"
    assert found.restart is not None
    assert found.restart.cache_type is None


def test_checkpoints_that_grew_are_given_up() -> None:
    facts = msgspec.structs.replace(FACTS, grown_bytes=4 * GIB, prompt_cache_mib=0)
    found = climb(GIB, facts)
    checkpoints = step(found, StepName.FEWER_CHECKPOINTS)
    assert checkpoints.frees_bytes == (8 - 2) * 4 * 100 * MIB
    assert found.restart is not None
    assert found.restart.checkpoints == 2
    assert StepName.FEWER_CHECKPOINTS in found.restart.steps


def test_steps_that_freed_nothing_or_are_not_allowed_are_not_taken() -> None:
    found = climb(GIB // 2, useless=(StepName.ONE_SLOT,))
    assert "did not move" in (step(found, StepName.ONE_SLOT).why_not or "")
    found = climb(GIB // 2, allowed=(StepName.SHORTER_CONTEXT,))
    assert taken(found) == [StepName.SHORTER_CONTEXT]
    assert "relief.steps" in (step(found, StepName.ONE_SLOT).why_not or "")


def test_how_long_it_takes_is_said() -> None:
    known = msgspec.structs.replace(FACTS, restart_seconds=125.0, restart_source="97 GiB at 780 MB/s")
    restart = climb(GIB, known).restart
    assert restart is not None
    assert "that takes about 2 min 5 s (97 GiB at 780 MB/s)" in restart.reason
    restart = climb(GIB).restart
    assert restart is not None
    assert "unknown" in restart.reason


def test_nothing_is_taken_when_nothing_is_missing() -> None:
    facts = msgspec.structs.replace(FACTS, warming=True, locked_bytes=GIB)
    memory = MemoryView(headroom_bytes=9 * GIB)
    found = relief_ladder.climb("glm", facts, memory, GIB, ALL)
    assert found is not None
    assert found.missing_bytes == 0
    assert not taken(found)
    assert found.restart is None
    assert relief_ladder.climb("glm", facts, MemoryView(), GIB) is None


SIZES = st.integers(0, 64 * GIB)


@st.composite
def some_facts(draw: st.DrawFn) -> ReliefFacts:
    maybe = lambda values: draw(st.none() | values)  # noqa: E731
    flag = lambda: draw(st.booleans())  # noqa: E731
    kv = relief_ladder.KvChoices(
        *(cost(draw(SIZES), draw(st.integers(0, 1 << 21)), draw(st.sampled_from([None, "no"]))) for _ in range(4)),
        draw(st.integers(0, GIB)),
    )
    return ReliefFacts(
        supervised=True,
        context_changeable=flag(),
        prompt_cache_changeable=flag(),
        context_length=maybe(st.integers(1, 1 << 24)),
        minimum_context=draw(st.integers(256, 1 << 20)),
        prompt_cache_mib=maybe(st.integers(0, 1 << 20)),
        kv_bytes_per_token=maybe(st.integers(0, 1 << 21)),
        ready=True,
        slots_changeable=flag(),
        checkpoints_changeable=flag(),
        cache_type_changeable=flag(),
        slots=maybe(st.integers(1, 256)),
        checkpoints=maybe(st.integers(0, 256)),
        cache_type=draw(st.sampled_from([None, "f16", "q8_0", "q4_0", "bf16"])),
        kv=kv if flag() else None,
        grown_bytes=maybe(SIZES),
        warming=flag(),
        locked_bytes=draw(SIZES),
    )


@given(some_facts(), SIZES, st.integers(-GIB, 64 * GIB), st.sets(st.sampled_from(ALL)), st.sets(st.sampled_from(ALL)))
def test_no_skipped_step_is_in_the_restart(
    facts: ReliefFacts, target: int, headroom: int, allowed: set[StepName], useless: set[StepName]
) -> None:
    found = relief_ladder.climb("glm", facts, MemoryView(headroom_bytes=headroom), target, allowed, useless)
    assert found is not None
    assert set(taken(found)) <= allowed - useless
    assert [one.name for one in found.steps] == list(StepName)
    for one in found.steps:
        assert one.sure_bytes >= 0
        assert one.frees_bytes is None or one.sure_bytes <= one.frees_bytes
    if found.restart is None:
        assert not any(one.taken and one.restart for one in found.steps)
        return
    restart = found.restart
    names = {one.name for one in found.steps if one.taken and one.restart}
    assert set(restart.steps) == names
    assert (restart.slots is not None) == (StepName.ONE_SLOT in names)
    assert (restart.checkpoints is not None) == (StepName.FEWER_CHECKPOINTS in names)
    assert (restart.cache_type is not None) == (StepName.QUANTISE_KV_CACHE in names)
    assert (restart.prompt_cache_mib is not None) == (StepName.SHRINK_PROMPT_CACHE in names)
    assert facts.context_length is not None
    if StepName.SHORTER_CONTEXT in names:
        assert facts.context_changeable
        assert facts.minimum_context <= restart.context_length < facts.context_length
    else:
        assert restart.context_length == facts.context_length
    if restart.prompt_cache_mib is not None:
        assert facts.prompt_cache_mib is not None
        assert restart.prompt_cache_mib < facts.prompt_cache_mib


def test_a_step_to_what_it_has_already_names_no_change() -> None:
    one = msgspec.structs.replace(FACTS, slots=1, slots_changeable=False)
    assert step(climb(8 * GIB, one), StepName.ONE_SLOT).what == "one slot"


def test_where_it_cannot_be_restarted_steps_that_need_none_are_taken_and_the_others_say_why() -> None:
    facts = msgspec.structs.replace(FACTS, locked_bytes=1 << 28, cannot_restart="turned off: systemd refuses")
    found = climb(1 << 30, facts)
    assert taken(found) == [StepName.RELEASE_PROTECTION]
    assert found.restart is None
    assert step(found, StepName.SHORTER_CONTEXT).why_not == "turned off: systemd refuses"
    assert climb(1 << 30, msgspec.structs.replace(facts, cannot_restart=None)).restart is not None
