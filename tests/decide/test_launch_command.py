from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.launch_command import command_for, fill, used_names, words_of
from moetuned.decide.supervision import LaunchPlan

NAMES = ("model", "context", "slots")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("{context}", "8192"),
        ("--ctx={context}", "--ctx=8192"),
        ("{model}{context}", "/{context}.gguf8192"),
        ("{prompt_cache_mib}", "64"),
        ("{slots},{checkpoints},{cache_type}", "2,8,q8_0"),
        ("{other} {", "{other} {"),
        ("$(reboot); {model}", "$(reboot); /{context}.gguf"),
    ],
)
def test_placeholders_are_replaced_once_and_nothing_else_is(argument: str, expected: str) -> None:
    assert command_for([argument], "/{context}.gguf", LaunchPlan(8192, 64, 2, 8, "q8_0")) == [expected]


@given(st.lists(st.text("ab{}modelcntxs ", max_size=30), max_size=5))
def test_what_holds_no_placeholder_stays_as_it_is(command: list[str]) -> None:
    values = dict.fromkeys(NAMES, "VALUE")
    filled = fill(command, values)
    assert len(filled) == len(command)
    used = used_names(command, NAMES)
    assert bool(used) == (filled != command)
    assert used_names(filled, NAMES) == frozenset()


def test_only_placeholders_are_used_names() -> None:
    assert used_names(["-c", "{context}", "--x={slots}", "model"], NAMES) == {"context", "slots"}


def test_what_it_is_started_with_in_words() -> None:
    plan = LaunchPlan(8192, 64, 1, 8, "q8_0")
    assert words_of(plan, lambda _name: False) == ""
    assert words_of(plan, lambda name: name in ("context", "slots")) == " with a context of 8192 tokens and 1 slot"
