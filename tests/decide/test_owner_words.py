"""What the owner of a backend can change himself, in its own words."""

from __future__ import annotations

import pytest

from moetuned import backends
from moetuned.decide.owner_words import owner_words
from moetuned.schema.action import RestartBackend
from moetuned.schema.relief import StepName

SHORTER = RestartBackend(
    "x", 4096, 64, "", slots=1, checkpoints=2, cache_type="q8_0", steps=(StepName.SHORTER_CONTEXT,)
)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("llama-server", "with -c 4096 -np 1 -ctk q8_0 -ctv q8_0 -ctxcp 2 -cram 64"),
        ("koboldcpp", "with --contextsize 4096"),
        ("llama-cpp-python", "with --n_ctx 4096"),
        (
            "ollama",
            "with OLLAMA_CONTEXT_LENGTH=4096 OLLAMA_NUM_PARALLEL=1 OLLAMA_KV_CACHE_TYPE=q8_0 LLAMA_ARG_CACHE_RAM=64",
        ),
        ("generic", "with a shorter context, by its own means"),
    ],
)
def test_each_kind_has_its_own_words(kind: str, said: str) -> None:
    assert owner_words(SHORTER, backends.load(kind).SETTINGS, 4) == said


def test_a_variable_of_one_slot_gets_its_part() -> None:
    names = backends.load("ollama").SETTINGS
    plain = RestartBackend("x", 4096, None, "", steps=(StepName.SHORTER_CONTEXT,))
    assert owner_words(plain, names, 4) == "with OLLAMA_CONTEXT_LENGTH=1024"
    assert owner_words(plain, names, None) == "with OLLAMA_CONTEXT_LENGTH=4096"


def test_what_stays_is_not_said() -> None:
    cache = RestartBackend("x", 4096, 64, "", steps=(StepName.SHRINK_PROMPT_CACHE,))
    assert owner_words(cache, backends.load("llama-server").SETTINGS, None) == "with -cram 64"
