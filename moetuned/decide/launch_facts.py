"""What of a backend's facts follows from how it was started: batches, KV cache, prompt cache. For who is not the daemon."""

from __future__ import annotations

import msgspec

from moetuned.decide.facts import BackendFacts
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription

DEFAULT_BATCH_TOKENS, DEFAULT_MICRO_BATCH_TOKENS = 2048, 512
"""-b and -ub of llama-server where nothing is said (tools/server/README.md)."""
DEFAULT_PROMPT_CACHE_MIB = 8192
"""--cache-ram of llama-server where nothing is said."""
LLAMA_CPP = ("llama-server", "xllamacpp", "ollama")
"""Kinds whose defaults these are, where they speak llama-server's dialect."""


def prompt_cache_mib(kind: str, said: BackendDescription | None, told_mib: int | None) -> int | None:
    """`told_mib`, or the default of a llama-server that was told nothing; MiB, None: unknown."""
    known = kind in LLAMA_CPP and (said is None or said.dialect is Dialect.LLAMA)
    return DEFAULT_PROMPT_CACHE_MIB if told_mib is None and known else told_mib


def with_launch(
    facts: BackendFacts, kind: str, said: BackendDescription | None, kv_bytes_per_token: int | None
) -> BackendFacts:
    """`facts` and what the command line says; unchanged when that is unknown. `kv_bytes_per_token`: with its cache types."""
    if said is None:
        return facts
    cache_mib = prompt_cache_mib(kind, said, said.prompt_cache_mib)
    llama = said.dialect is Dialect.LLAMA
    context = said.context_length
    return msgspec.structs.replace(
        facts,
        batch_tokens=said.batch_tokens or (DEFAULT_BATCH_TOKENS if llama else None),
        micro_batch_tokens=said.micro_batch_tokens or (DEFAULT_MICRO_BATCH_TOKENS if llama else None),
        kv_cache_bytes=None if kv_bytes_per_token is None or context is None else kv_bytes_per_token * context,
        prompt_cache_bytes=None if cache_mib is None or cache_mib < 0 else cache_mib << 20,
    )
