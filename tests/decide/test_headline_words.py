from __future__ import annotations

import shlex

import msgspec
from headline_scenes import view
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.headline_words import (
    grew_text,
    grower,
    model_word,
    read_text,
    reader,
    relief_command,
    shell_word,
    tokens,
)
from moetuned.schema.neighbour import Neighbour
from moetuned.schema.verdict import Phase


@given(st.text(min_size=1))
def test_a_word_is_one_word_to_a_shell(text: str) -> None:
    assert shlex.split(shell_word(text)) == [text]


def test_what_is_plain_stays_plain() -> None:
    assert shell_word("/models/glm-00001-of-7.gguf") == "/models/glm-00001-of-7.gguf"
    assert shell_word("a; rm -rf /") == "'a; rm -rf /'"
    assert shell_word("") == "''"


def test_commands() -> None:
    one = view("my model", Phase.IDLE)
    assert relief_command(one) == "moetunectl relief plan 'my model'"
    assert model_word(one) == "/models/glm.gguf"
    assert model_word(msgspec.structs.replace(one, model_path=None)) == "MODEL"


def test_speeds() -> None:
    assert [tokens(speed) for speed in (0.0, 0.04, 0.95, 13.33)] == [
        "0.0 tokens/s",
        "0.04 tokens/s",
        "0.9 tokens/s",
        "13.3 tokens/s",
    ]


def test_who_did_most() -> None:
    some = (Neighbour("a", "grew", 5, 1.0), Neighbour("b", "grew", 1 << 30, 1.0), Neighbour("c", "read", 1 << 30, 1.0))
    assert (grower(some), reader(some)) == (some[1], some[2])
    assert (grower(()), reader(some[:2])) == (None, None)
    assert (grew_text(some[1]), read_text(some[2])) == ("b grew 1.0 GiB", "c read 1.0 GiB")
