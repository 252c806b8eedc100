"""llama-server's command line and LLAMA_ARG_* environment, as far as moetuned needs them.

The server reads its environment first and its arguments afterwards, so the command line wins and the last of two equal flags
counts (common/arg.cpp of llama.cpp). Underscores in long flags are hyphens there. A value that is no number, or a flag without its
value, is unknown: the server would have refused to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from moetuned.parse.client_url import client_url, whole
from moetuned.parse.spelled_flags import spelled_flags
from moetuned.schema.backend_description import BackendDescription

_PROGRAM = "llama-server"
_IK_DIRECTORIES = ("ik_llama", "ik-llama")
_IK_FLAGS = frozenset(
    (
        "--defer-experts", "--prefetch-experts", "-rtr", "--run-time-repack", "-fmoe", "--fused-moe", "-no-fmoe", "--no-fused-moe",
        "-mla", "--mla-use", "-amb", "--attention-max-batch", "-ser", "--smart-expert-reduction", "-thp", "--transparent-huge-pages",
    )
)  # fmt: skip
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8080
"""What llama-server listens on when nothing is said (tools/server/README.md)."""


class _Flag(msgspec.Struct, frozen=True):
    """One setting: its spellings on the command line and its variable. `switch`: takes no value; `off`: those of its spellings that
    switch it off.
    """

    spellings: tuple[str, ...]
    variable: str | None
    switch: bool = False
    off: tuple[str, ...] = ()


_UNIFIED, _NOT_UNIFIED = "LLAMA_ARG_KV_UNIFIED", "LLAMA_ARG_NO_KV_UNIFIED"
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
    "slot_save_path": _Flag(("--slot-save-path",), None),
    "metrics": _Flag(("--metrics",), "LLAMA_ARG_ENDPOINT_METRICS", switch=True),
    "kv_unified": _Flag(
        ("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"),
        _UNIFIED,
        switch=True,
        off=("-no-kvu", "--no-kv-unified"),
    ),
}
_SPELLINGS = {spelling: name for name, flag in _FLAGS.items() for spelling in flag.spellings}
_SWITCHES = frozenset(name for name, flag in _FLAGS.items() if flag.switch)
_OFF = frozenset(spelling for flag in _FLAGS.values() for spelling in flag.off)
VARIABLES = (*(flag.variable for flag in _FLAGS.values() if flag.variable is not None), _NOT_UNIFIED)
"""Variables that say what flags say."""
_TRUE = frozenset(("on", "enabled", "true", "1"))
"""Words that switch a LLAMA_ARG_* switch on (common/arg.cpp, is_truthy),"""
_FALSE = frozenset(("off", "disabled", "false", "0"))
"""and off."""


def is_llama_server(argv: Sequence[str]) -> bool:
    """Whether the program is called llama-server, or llama-server-SOMETHING, in any directory."""
    program = argv[0].rpartition("/")[2] if argv else ""
    return program == _PROGRAM or program.startswith(_PROGRAM + "-")


def is_ik_llama(argv: Sequence[str]) -> bool:
    """Whether a llama-server is that of ik_llama.cpp: by its directory, or by a flag that only this fork has."""
    if not is_llama_server(argv):
        return False
    below = any(part.startswith(_IK_DIRECTORIES) for part in argv[0].split("/")[:-1])
    return below or any(word.partition("=")[0] in _IK_FLAGS for word in argv[1:])


def describe_arguments(arguments: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What `arguments` (without the program) and `environ` say. Takes `-c N`, `--ctx-size N` and `--ctx-size=N` alike."""
    said = {name: environ[flag.variable] for name, flag in _FLAGS.items() if flag.variable and flag.variable in environ}
    said = {name: text for name, text in said.items() if text != "" and (not _FLAGS[name].switch or text in _TRUE)}
    if environ.get(_UNIFIED) in _FALSE or _NOT_UNIFIED in environ:  # common/arg.cpp: any value of the second
        said["kv_unified"] = "off"
    said.update(_command_line(arguments))
    url, url_unknown = _url(said)
    return BackendDescription(
        model_path=said.get("model") or None,
        context_length=whole(said.get("context")),
        slots=whole(said.get("slots")),
        cache_type_k=said.get("cache_type_k") or None,
        cache_type_v=said.get("cache_type_v") or None,
        prompt_cache_mib=whole(said.get("prompt_cache"), minimum=-1),
        threads=whole(said.get("threads")),
        url=url,
        url_unknown=url_unknown,
        metrics="metrics" in said,
        sleeps_after_seconds=whole(said.get("sleep")),
        batch_tokens=whole(said.get("batch")),
        micro_batch_tokens=whole(said.get("micro_batch")),
        slot_save_path=said.get("slot_save_path") or None,
        kv_unified=None if "kv_unified" not in said else said["kv_unified"] != "off",
    )


def _command_line(arguments: Sequence[str]) -> dict[str, str]:
    """Text of each known flag; "" for one whose value is missing."""
    return spelled_flags([_hyphened(word) for word in arguments], _SPELLINGS, _SWITCHES, _OFF)


def _hyphened(word: str) -> str:
    spelling, equals, value = word.partition("=")
    return f"{spelling.replace('_', '-')}{equals}{value}" if word.startswith("--") else word


def _url(said: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The address a client on this machine uses, or why there is none."""
    url, unknown = client_url(said.get("host", DEFAULT_HOST) or "no address", said.get("port", str(DEFAULT_PORT)))
    if url is not None and "tls_key" in said:
        return None, "it serves TLS (--ssl-key-file)"
    prefix = said.get("prefix", "").strip("/")
    if url is None or not prefix:
        return url, unknown
    if not all(letter.isascii() and (letter.isalnum() or letter in "-_./~") for letter in prefix):
        return None, f"--api-prefix {said['prefix']!r} is no path"
    return f"{url}/{prefix}", None
