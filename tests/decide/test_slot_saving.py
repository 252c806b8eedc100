"""Which conversations are saved over a restart, and why others are not."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import slot_saving
from moetuned.decide.slot_saving import ConversationFacts, SlotFile, is_unified, to_restore, to_save, too_long, why_lost
from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.sample import Slot

GIB = 1 << 30
FACTS = ConversationFacts("http://127.0.0.1:1", 7, True, "/slots", 3072, unified=False, windows=False)
NOW = LaunchPlan(8192, 64, 4, 8, "f16")


def test_what_fits_the_new_settings_goes_on() -> None:
    assert why_lost(FACTS, NOW, LaunchPlan(2048, 0, 4, 2, "f16")) is None
    assert (
        why_lost(msgspec.structs.replace(FACTS, unified=None, windows=None), NOW, LaunchPlan(2048, 0, 1, 2, "f16"))
        is None
    )
    assert why_lost(msgspec.structs.replace(FACTS, unified=True), NOW, LaunchPlan(2048, 0, 1, 2, "f16")) is None


@pytest.mark.parametrize(
    ("facts", "then", "said"),
    [
        ({"can_save": False}, {}, "its kind cannot"),
        ({"can_save": None}, {}, "is not known yet"),
        ({"directory": None}, {}, "without --slot-save-path"),
        ({"url": None}, {}, "cannot be asked"),
        ({"pid": None}, {}, "cannot be asked"),
        ({"kv_bytes_per_token": None}, {}, "how large"),
        ({"windows": True}, {}, "sliding windows"),
        ({}, {"cache_type": "q8_0"}, "type of KV cache"),
        ({}, {"slots": 1}, "number of slots"),
    ],
)
def test_why_none_goes_on(facts: dict, then: dict, said: str) -> None:
    why = why_lost(msgspec.structs.replace(FACTS, **facts), NOW, msgspec.structs.replace(NOW, **then))
    assert why is not None
    assert said in why


@pytest.mark.parametrize(
    ("lengths", "context", "expected"),
    [
        ((8192,), 8192, True), ((4096, 4096), 8192, False), ((8192, 8192), 8192, True), ((2560,) * 4, 10000, False),
        ((), 8192, None), ((4096,), None, None), ((None, None), 8192, None),
    ],
)  # fmt: skip
def test_whether_the_slots_share_a_cache(lengths: tuple, context: int | None, expected: bool | None) -> None:
    assert is_unified([Slot(number, context_length=each) for number, each in enumerate(lengths)], context) is expected
    assert is_unified(None, context) is None


def slot(
    number: int, tokens: int | None, *, busy: bool | None = False, task: int | None = 1, length: int | None = 4096
) -> Slot:
    return Slot(number, processing=busy, task_id=task, context_length=length, prompt_tokens=tokens, decoded_tokens=0)


def test_the_longest_first_and_what_works_on_a_request_or_is_too_long_not_at_all() -> None:
    slots = [
        slot(0, 100),
        slot(1, 900),
        slot(2, 500, busy=True),
        slot(3, 2048),
        slot(4, None, task=None),
        slot(5, 9, busy=None),
        slot(6, 0),
    ]
    assert to_save(slots, 2048) == ((1, 900), (0, 100), (4, 2048))
    assert [too_long(slots, longest) for longest in (4096, 2048, 900)] == [0, 1, 2]


def test_each_goes_into_the_smallest_unused_slot_that_it_fits() -> None:
    files = [SlotFile("short", 100), SlotFile("long", 3000), SlotFile("longest", 5000)]
    slots = [
        slot(0, None, task=None, length=4096),
        slot(1, None, task=None, length=2048),
        slot(2, 7),
        slot(3, None, task=None, busy=True),
    ]
    assert to_restore(files, slots) == ((0, files[1]), (1, files[0]))
    assert to_restore(files[:1], [slot(0, 5)]) == ()
    assert to_restore(files[:1], [slot(0, None, task=None, length=100)]) == ()


any_slots = st.lists(
    st.builds(
        Slot, st.integers(0, 1 << 53), st.none() | st.booleans(), st.none() | st.integers(0, 9), st.none() | st.integers(0, 1 << 53),
        st.none() | st.integers(0, 1 << 53), st.none(), st.none() | st.integers(0, 1 << 53),
    ), max_size=8, unique_by=lambda each: each.slot_id,
)  # fmt: skip


@given(
    any_slots,
    st.integers(1, 1 << 20),
    st.lists(st.builds(SlotFile, st.text(max_size=3), st.integers(1, 1 << 20)), max_size=5),
)
def test_whatever_a_server_says(slots: list[Slot], longest: int, files: list[SlotFile]) -> None:
    idle = {each.slot_id for each in slots if each.processing is False}
    saved = [number for number, _ in to_save(slots, longest)]
    assert len(set(saved)) == len(saved)
    assert set(saved) <= idle
    restored = to_restore(files, slots)
    assert len({number for number, _ in restored}) == len(restored) <= len(files)
    lengths = {each.slot_id: each.context_length for each in slots}
    assert all((lengths[number] or 0) > file.tokens for number, file in restored)


@given(st.integers(0, 1 << 24), st.integers(1, 1 << 20))
def test_a_file_is_never_taken_for_smaller_than_its_cache(tokens: int, cost: int) -> None:
    assert slot_saving.file_bytes(tokens, cost) > tokens * cost


def test_a_disk_is_never_filled() -> None:
    assert slot_saving.may_write(GIB, 2 * GIB, 10 * GIB)
    assert not slot_saving.may_write(GIB + 1, 2 * GIB, 10 * GIB)
    assert not slot_saving.may_write(GIB, 5 * GIB, 100 * GIB)
    assert slot_saving.may_write(GIB, 6 * GIB, 100 * GIB)
