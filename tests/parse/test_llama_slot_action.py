"""Answers to saving and reading a slot, those of b11434 and rubbish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.llama_slot_action import parse_slot_action

SAVED = '{"id_slot":1,"filename":"a1.bin","n_saved":2612,"n_written":8065984,"timings":{"save_ms":4.04}}'
RESTORED = '{"id_slot":1,"filename":"a1.bin","n_restored":2612,"n_read":8065984,"timings":{"restore_ms":3.524}}'


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (SAVED, 2612), (RESTORED, 2612), ('{"n_saved":0}', 0), ("{}", None), ("[]", None), ("", None), ("!400", None),
        ('{"n_saved":-1}', None), ('{"n_saved":1e999}', None), ('{"n_saved":true}', None), ('{"n_saved":"9"}', None),
    ],
)  # fmt: skip
def test_tokens(body: str, tokens: int | None) -> None:
    assert parse_slot_action(body) == tokens


@given(st.text() | st.just("[" * 100_000))
def test_nothing_raises(body: str) -> None:
    parse_slot_action(body)
