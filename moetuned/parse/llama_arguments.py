"""llama-server's command line and LLAMA_ARG_* environment, as far as moetuned needs them.

The server reads its environment first and its arguments afterwards, so the command line wins and the last of two equal flags
counts (common/arg.cpp of llama.cpp). Underscores in long flags are hyphens there. A value that is no number, or a flag without its
value, is unknown: the server would have refused to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from moetuned.schema.backend_description import BackendDescription

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8080
"""What llama-server listens on when nothing is said (tools/server/README.md)."""
ENVIRONMENT_PREFIX = "LLAMA_ARG_"
_MAX_DIGITS = 10


class _Flag(msgspec.Struct, frozen=True):
    """One setting: its spellings on the command line and its variable. `switch`: takes no value."""

    spellings: tuple[str, ...]
    variable: str | None
    switch: bool = False


_FLAGS: dict[str, _Flag] = {
    "model": _Flag(("-m", "--model"), "LLAMA_ARG_MODEL"),
    "context": _Flag(("-c", "--ctx-size"), "LLAMA_ARG_CTX_SIZE"),
    "slots": _Flag(("-np", "--parallel"), "LLAMA_ARG_N_PARALLEL"),
    "cache_type_k": _Flag(("-ctk", "--cache-type-k"), "LLAMA_ARG_CACHE_TYPE_K"),
    "cache_type_v": _Flag(("-ctv", "--cache-type-v"), "LLAMA_ARG_CACHE_TYPE_V"),
    "prompt_cache": _Flag(("-cram", "--cache-ram"), "LLAMA_ARG_CACHE_RAM"),
    "threads": _Flag(("-t", "--threads"), "LLAMA_ARG_THREADS"),
    "host": _Flag(("--host",), "LLAMA_ARG_HOST"),
    "port": _Flag(("--port",), "LLAMA_ARG_PORT"),
    "prefix": _Flag(("--api-prefix",), "LLAMA_ARG_API_PREFIX"),
    "tls_key": _Flag(("--ssl-key-file",), "LLAMA_ARG_SSL_KEY_FILE"),
    "sleep": _Flag(("--sleep-idle-seconds",), None),
    "batch": _Flag(("-b", "--batch-size"), "LLAMA_ARG_BATCH"),
    "micro_batch": _Flag(("-ub", "--ubatch-size"), "LLAMA_ARG_UBATCH"),
    "metrics": _Flag(("--metrics",), "LLAMA_ARG_ENDPOINT_METRICS", switch=True),
}
_BY_SPELLING = {spelling: (name, flag) for name, flag in _FLAGS.items() for spelling in flag.spellings}
_TRUE = frozenset(("on", "enabled", "true", "1"))
"""Words that switch a LLAMA_ARG_* switch on (common/arg.cpp, is_truthy)."""


def describe_arguments(arguments: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What `arguments` (without the program) and `environ` say. Takes `-c N`, `--ctx-size N` and `--ctx-size=N` alike."""
    said = {name: environ[flag.variable] for name, flag in _FLAGS.items() if flag.variable and flag.variable in environ}
    said = {name: text for name, text in said.items() if text != "" and (not _FLAGS[name].switch or text in _TRUE)}
    said.update(_command_line(arguments))
    url, url_unknown = _url(said)
    return BackendDescription(
        model_path=said.get("model") or None,
        context_length=_positive(said.get("context")),
        slots=_positive(said.get("slots")),
        cache_type_k=said.get("cache_type_k") or None,
        cache_type_v=said.get("cache_type_v") or None,
        prompt_cache_mib=_number(said.get("prompt_cache"), minimum=-1),
        threads=_positive(said.get("threads")),
        url=url,
        url_unknown=url_unknown,
        metrics="metrics" in said,
        sleeps_after_seconds=_positive(said.get("sleep")),
        batch_tokens=_positive(said.get("batch")),
        micro_batch_tokens=_positive(said.get("micro_batch")),
    )


def _command_line(arguments: Sequence[str]) -> dict[str, str]:
    """Text of each known flag; "" for one whose value is missing."""
    said: dict[str, str] = {}
    position = 0
    while position < len(arguments):
        spelling, equals, joined = arguments[position].partition("=")
        position += 1
        known = _BY_SPELLING.get(spelling.replace("_", "-") if spelling.startswith("--") else spelling)
        if known is None:
            continue
        name, flag = known
        if flag.switch:
            said[name] = "on"
        elif equals:
            said[name] = joined
        elif position < len(arguments):
            said[name] = arguments[position]
            position += 1
        else:
            said[name] = ""
    return said


def _number(text: str | None, minimum: int) -> int | None:
    if text is None or len(text) > _MAX_DIGITS or not text.isascii() or not text.removeprefix("-").isdigit():
        return None
    value = int(text)
    return value if value >= minimum else None


def _positive(text: str | None) -> int | None:
    return _number(text, minimum=1)


def _url(said: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The address a client on this machine uses, or why there is none."""
    host = said.get("host", DEFAULT_HOST).strip("[]")
    port = _number(said.get("port", str(DEFAULT_PORT)), minimum=1)
    if port is None or port > 65535:
        return None, f"--port {said.get('port', '')!r} is no port"
    if "tls_key" in said:
        return None, "it serves TLS (--ssl-key-file)"
    if host.endswith(".sock"):
        return None, f"it listens on the Unix socket {host}"
    if host in ("0.0.0.0", "127.0.0.1"):  # noqa: S104  recognised, not bound
        host = "127.0.0.1"
    elif host in ("::", "::1"):
        host = "[::1]"
    elif host != "localhost" and not _is_loopback(host):
        return None, f"it listens on {host or 'no address'} only, and moetuned asks backends on loopback only"
    prefix = said.get("prefix", "").strip("/")
    if prefix and not all(letter.isascii() and (letter.isalnum() or letter in "-_./~") for letter in prefix):
        return None, f"--api-prefix {said['prefix']!r} is no path"
    return f"http://{host}:{port}" + (f"/{prefix}" if prefix else ""), None


def _is_loopback(host: str) -> bool:
    parts = host.split(".")
    return (
        len(parts) == 4
        and parts[0] == "127"
        and all(_number(part, 0) is not None and int(part) < 256 for part in parts)
    )
