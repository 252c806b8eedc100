"""Ollama's processes: `ollama serve` takes requests, and for each loaded model it starts another process that holds it.

Which one that is has changed (log line "starting runner cmd=…" of its versions): `ollama_llama_server --model …` to 0.4, then
`ollama runner --model … --ctx-size N --parallel N --port N`, then `ollama runner [--ollama-engine] --model … --port N`, which is told
the rest over HTTP, and since 0.30 llama.cpp's own server as `…/lib/ollama/llama-server --model … -c N -np N`. The model is the GGUF
blob itself. A runner without --model only looks for GPUs. All inherit the variables of `ollama serve` (envconfig/config.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from moetuned.parse.client_url import client_url, whole
from moetuned.parse.llama_arguments import VARIABLES as LLAMA_VARIABLES
from moetuned.parse.llama_arguments import describe_arguments
from moetuned.parse.spelled_flags import spelled_flags
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", "11434"
VARIABLES = (
    "OLLAMA_HOST", "OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL", "OLLAMA_KV_CACHE_TYPE", *LLAMA_VARIABLES,
)  # fmt: skip
_SPELLINGS = {
    "--model": "model",
    "--ctx-size": "context",
    "--parallel": "slots",
    "--port": "port",
    "--threads": "threads",
    "--batch-size": "batch",
    "--kv-cache-type": "cache_type",
}
_OLD_RUNNER = "ollama_llama_server"
_LLAMA_SERVER = "llama-server"


def ollama_part(argv: Sequence[str]) -> str | None:
    """Which of Ollama's processes this is: "serve", "runner" or "llama-server"; None for any other."""
    directory, _, program = argv[0].rpartition("/") if argv else ("", "", "")
    if program == "ollama" and argv[1:2] in (["serve"], ("serve",), ["start"], ("start",)):
        return "serve"
    if program == _LLAMA_SERVER and "ollama" in directory.split("/")[-2:]:
        return _LLAMA_SERVER
    is_runner = program == _OLD_RUNNER or (program == "ollama" and tuple(argv[1:2]) == ("runner",))
    return "runner" if is_runner and spelled_flags(argv[1:], _SPELLINGS).get("model") else None


def describe_ollama(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say.

    A runner's context that is not on its command line is the variable's, which a model's own settings and requests may override.
    """
    front_url, front_unknown = _front(environ.get("OLLAMA_HOST", ""))
    part = ollama_part(argv)
    if part == "serve":
        return BackendDescription(url=front_url, url_unknown=front_unknown, dialect=Dialect.OLLAMA, front_url=front_url)
    if part == _LLAMA_SERVER:
        return msgspec.structs.replace(describe_arguments(argv[1:], environ), front_url=front_url)
    said = spelled_flags(argv[1:], _SPELLINGS)
    slots = whole(said.get("slots")) or whole(environ.get("OLLAMA_NUM_PARALLEL"))
    cache_type = said.get("cache_type") or environ.get("OLLAMA_KV_CACHE_TYPE") or None
    url, unknown = (None, "its --port is not said") if "port" not in said else client_url(DEFAULT_HOST, said["port"])
    return BackendDescription(
        model_path=said.get("model") or None,
        context_length=whole(said.get("context")) or _all_slots(environ.get("OLLAMA_CONTEXT_LENGTH"), slots),
        slots=slots,
        cache_type_k=cache_type,
        cache_type_v=cache_type,
        threads=whole(said.get("threads")),
        url=url,
        url_unknown=unknown,
        batch_tokens=whole(said.get("batch")),
        dialect=Dialect.OLLAMA_RUNNER,
        front_url=front_url,
    )


def _all_slots(each: str | None, slots: int | None) -> int | None:
    """OLLAMA_CONTEXT_LENGTH is a slot's; one where nothing is said of slots (the default)."""
    length = whole(each)
    return None if length is None else length * (slots or 1)


def _front(host: str) -> tuple[str | None, str | None]:
    """Where `ollama serve` listens: OLLAMA_HOST as `host`, `host:port`, `:port`, perhaps with a scheme."""
    scheme, _, rest = host.strip().strip("\"'").rpartition("://")
    if scheme == "https":
        return None, "it serves TLS (OLLAMA_HOST)"
    where = rest.partition("/")[0]
    # Brackets of an IPv6 address hold colons that lead to no port.
    name, colon, port = where.rpartition(":") if not where.endswith("]") else (where, "", "")
    if not colon:
        name, port = where, "80" if scheme == "http" else DEFAULT_PORT
    return client_url(name or DEFAULT_HOST, port or DEFAULT_PORT, port_word="the port of OLLAMA_HOST")
