"""What a command line says of batches and caches; what it does not say is llama.cpp's default."""

from __future__ import annotations

import pytest

from moetuned.decide.facts import BackendFacts
from moetuned.decide.launch_facts import with_launch
from moetuned.schema.backend_description import BackendDescription

SAID = BackendDescription(context_length=1000, prompt_cache_mib=64, batch_tokens=512, micro_batch_tokens=128)


def test_what_is_said_counts() -> None:
    told = with_launch(BackendFacts(model_bytes=9), "llama-server", SAID, 7)
    assert told == BackendFacts(
        model_bytes=9, batch_tokens=512, micro_batch_tokens=128, kv_cache_bytes=7000, prompt_cache_bytes=64 << 20
    )


def test_an_unknown_command_line_says_nothing() -> None:
    assert with_launch(BackendFacts(model_bytes=9), "process", None, 7) == BackendFacts(model_bytes=9)


@pytest.mark.parametrize(("kind", "mib"), [("llama-server", 8192), ("xllamacpp", 8192), ("simulator", None)])
def test_defaults_are_those_of_the_kind(kind: str, mib: int | None) -> None:
    told = with_launch(BackendFacts(), kind, BackendDescription(), 7)
    assert (told.batch_tokens, told.micro_batch_tokens, told.kv_cache_bytes) == (2048, 512, None)
    assert told.prompt_cache_bytes == (None if mib is None else mib << 20)


def test_a_prompt_cache_without_a_limit_has_none() -> None:
    assert (
        with_launch(BackendFacts(), "llama-server", BackendDescription(prompt_cache_mib=-1), None).prompt_cache_bytes
        is None
    )
