"""KoboldCpp's command line: `koboldcpp.py --model FILE --contextsize N`.

From the argument parser of koboldcpp.py 1.102: newer spellings are those of llama.cpp, model and port may also be the first two
plain words, and with --config nothing else counts. It has no variables.
"""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.parse.client_url import client_url, whole
from moetuned.parse.spelled_flags import spelled_flags
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription

DEFAULT_PORT = "5001"
_FLAGS = {
    "model": ("--model", "-m"),
    "context": ("--contextsize", "--ctx-size", "-c"),
    "threads": ("--threads", "-t"),
    "batch": ("--batchsize", "--blasbatchsize", "--batch-size", "-b"),
    "quantkv": ("--quantkv",),
    "flash": ("--flashattention", "--flash-attn", "-fa"),
    "host": ("--host",),
    "port": ("--port",),
    "config": ("--config",),
    "tls": ("--ssl",),
}
_SPELLINGS = {spelling: name for name, spellings in _FLAGS.items() for spelling in spellings}
_SWITCHES = ("flash",)
_TYPES = {"0": "f16", "1": "q8_0", "2": "q4_0"}


def describe_kobold(arguments: Sequence[str]) -> BackendDescription:
    """What `arguments` (without the program) say."""
    said = {**_plain_words(arguments), **spelled_flags(arguments, _SPELLINGS, _SWITCHES)}
    if "config" in said:
        unknown = "its address is in its --config file; say `url:` in its entry of the config"
        return BackendDescription(url_unknown=unknown, dialect=Dialect.KOBOLD)
    url, url_unknown = client_url(said.get("host", ""), said.get("port", DEFAULT_PORT))
    if url is not None and "tls" in said:
        url, url_unknown = None, "it serves TLS (--ssl)"
    cache_type = _TYPES.get(said["quantkv"]) if "quantkv" in said else None
    return BackendDescription(
        model_path=said.get("model") or None,
        context_length=whole(said.get("context")),
        cache_type_k=cache_type,
        # Without flash attention only K is quantised.
        cache_type_v=cache_type if cache_type is None or "flash" in said else "f16",
        threads=whole(said.get("threads")),
        url=url,
        url_unknown=url_unknown,
        batch_tokens=whole(said.get("batch")),
        dialect=Dialect.KOBOLD,
    )


def _plain_words(arguments: Sequence[str]) -> dict[str, str]:
    """Model and port where they come first and without flags."""
    plain = []
    for word in arguments[:2]:
        if word.startswith("-"):
            break
        plain.append(word)
    return dict(zip(("model", "port"), plain, strict=False))
