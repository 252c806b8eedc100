"""Command line and environment of llama-cpp-python's server: `python -m llama_cpp.server`.

Its settings are a pydantic model (llama_cpp/server/settings.py of 0.3.36): each is a flag `--n_ctx N` and a variable `N_CTX`, in either
case; flags go before variables, but the variables HOST and PORT go before the flags (llama_cpp/server/__main__.py). With a config
file nothing else counts but HOST and PORT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse.client_url import client_url, whole
from moetuned.parse.spelled_flags import spelled_flags
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription

DEFAULT_HOST, DEFAULT_PORT = "localhost", "8000"
_SETTINGS = (
    "model", "n_ctx", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "cache", "cache_type", "cache_size", "host", "port",
    "ssl_keyfile", "config_file",
)  # fmt: skip
_SPELLINGS = {f"--{name}": name for name in _SETTINGS}
VARIABLES = tuple(spelled for name in _SETTINGS for spelled in (name.upper(), name))
_TRUE = frozenset(("1", "on", "t", "true", "y", "yes"))
_CACHE_BYTES = 2 << 30
"""`cache_size` where nothing is said and there is a cache."""
_CACHE_DIGITS = 18
_TYPES = {
    "0": "f32", "1": "f16", "2": "q4_0", "3": "q4_1", "6": "q5_0", "7": "q5_1", "8": "q8_0", "20": "iq4_nl", "30": "bf16",
}  # fmt: skip
"""Numbers of KV cache types (enum ggml_type of ggml.h)."""


def describe_llama_python(arguments: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What `arguments` (behind the module's name) and `environ` say."""
    told = {name: text for name in _SETTINGS if (text := environ.get(name.upper(), environ.get(name)))}
    said = {**told, **spelled_flags(arguments, _SPELLINGS)}
    where = {name: told.get(name) or said.get(name) for name in ("host", "port")}
    if environ.get("CONFIG_FILE") or said.get("config_file"):
        return _by_config_file(environ)
    url, unknown = client_url(where["host"] or DEFAULT_HOST, where["port"] or DEFAULT_PORT)
    if url is not None and said.get("ssl_keyfile"):
        url, unknown = None, "it serves TLS (--ssl_keyfile)"
    return BackendDescription(
        model_path=said.get("model") or None,
        context_length=whole(said.get("n_ctx")),
        cache_type_k=_TYPES.get(said.get("type_k", "")),
        cache_type_v=_TYPES.get(said.get("type_v", "")),
        prompt_cache_mib=_cache_mib(said),
        threads=whole(said.get("n_threads")),
        url=url,
        url_unknown=unknown,
        batch_tokens=whole(said.get("n_batch")),
        micro_batch_tokens=whole(said.get("n_ubatch")),
        dialect=Dialect.LLAMA_PYTHON,
    )


def _by_config_file(environ: Mapping[str, str]) -> BackendDescription:
    """Only its variables are known: the file is not read, and its model is found as it is mapped."""
    if not environ.get("PORT"):
        unknown = "its address is in its config file; say `url:` in its entry of the config"
        return BackendDescription(url_unknown=unknown, dialect=Dialect.LLAMA_PYTHON)
    url, url_unknown = client_url(environ.get("HOST") or DEFAULT_HOST, environ["PORT"])
    return BackendDescription(url=url, url_unknown=url_unknown, dialect=Dialect.LLAMA_PYTHON)


def _cache_mib(said: Mapping[str, str]) -> int | None:
    """Of its cache in memory: one on disk takes none. None where it is not said whether there is one."""
    if "cache" not in said:
        return None
    if said["cache"].lower() not in _TRUE or said.get("cache_type") == "disk":
        return 0
    size = said.get("cache_size", str(_CACHE_BYTES))
    return int(size) >> 20 if size.isascii() and size.isdigit() and len(size) <= _CACHE_DIGITS else None
