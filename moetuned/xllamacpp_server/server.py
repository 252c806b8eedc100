"""Start the wheel's llama.cpp server with the flags of llama-server and hold it until a signal.

The wheel's `Server` listens before it loads, so `/health` answers 503 meanwhile, and its constructor returns when the
model is loaded; the C++ side runs in threads of its own, this one only sleeps.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn

from moetuned.xllamacpp_server.flags import (
    LLAMA_SERVER_FLAGS,
    Flag,
    FlagError,
    Value,
    help_text,
    parse_flags,
    required_model,
)

TITLE = "usage: python -m moetuned.xllamacpp_server -m MODEL [flags]: the llama.cpp of the pip wheel xllamacpp"

# fmt: off
FLAGS = (
    *LLAMA_SERVER_FLAGS,
    Flag("api_key", ("--api-key",), "keys that requests must have, separated by commas (default: none)", "", "KEY", variable="LLAMA_API_KEY"),
    Flag("api_key_file", ("--api-key-file",), "file with such keys, one a line (default: none)", "", "FNAME", variable="LLAMA_ARG_API_KEY_FILE"),
)
# fmt: on
_KEYS_BYTES = 1 << 20


class StartError(Exception):
    """The server could not start; the message says why and what to do."""


def parameters(values: Mapping[str, Value], wheel: Any) -> Any:
    """The wheel's CommonParams for parsed flags; `wheel` is the module xllamacpp (untyped, hence Any)."""
    params = wheel.CommonParams()
    params.model.path = values["model"]
    if values["alias"]:
        params.model_alias = {values["alias"]}
    params.n_ctx = values["context"]
    # llama-server's automatic choice: four slots that share one KV buffer.
    automatic = values["parallel"] in (-1, 0)
    params.n_parallel = 4 if automatic else values["parallel"]
    params.kv_unified = values["kv_unified"] or automatic
    params.n_predict = values["predict"]
    params.n_batch, params.n_ubatch = values["batch"], values["ubatch"]
    params.cpuparams.n_threads = values["threads"]
    params.cpuparams_batch.n_threads = values["threads_batch"]
    params.cache_type_k = wheel.ggml_type[f"GGML_TYPE_{str(values['cache_type_k']).upper()}"]
    params.cache_type_v = wheel.ggml_type[f"GGML_TYPE_{str(values['cache_type_v']).upper()}"]
    attention = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[str(values["flash_attention"])]
    params.flash_attn_type = wheel.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{attention}"]
    params.cache_ram_mib, params.n_ctx_checkpoints = values["cache_ram"], values["checkpoints"]
    mode = {"mmap+mlock": "MMAP_MLOCK", "dio": "DIRECT_IO"}.get(
        str(values["load_mode"]), str(values["load_mode"]).upper()
    )
    params.load_mode = wheel.llama_load_mode[f"LLAMA_LOAD_MODE_{mode}"]
    params.no_extra_bufts = not values["repack"]
    params.fit_params = values["fit"] == "on"
    params.n_gpu_layers = values["gpu_layers"]
    params.warmup = values["warmup"]
    params.hostnames, params.port = [values["host"]], values["port"]
    params.endpoint_metrics, params.endpoint_slots = values["metrics"], values["slots"]
    if values["slot_save_path"]:
        params.slot_save_path = os.path.join(os.path.abspath(str(values["slot_save_path"])), "")
    params.api_keys = api_keys(str(values["api_key"]), str(values["api_key_file"]))
    params.n_threads_http = values["threads_http"]
    params.timeout_read = params.timeout_write = values["timeout"]
    params.verbosity = values["verbosity"]
    return params


def api_keys(said: str, path: str) -> list[str]:
    """The keys of both flags; none: everybody is answered. Raises StartError when the file cannot be read."""
    lines: list[str] = []
    if path:
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read(_KEYS_BYTES).splitlines()
        except OSError as error:
            raise StartError(f"cannot read the file with API keys, {path}: {error.strerror}") from error
    return [key for key in (each.strip() for each in (*said.split(","), *lines)) if key and not key.startswith("#")]


def load_wheel() -> Any:
    """The module xllamacpp. Raises StartError with how to get it."""
    try:
        import xllamacpp
    except ImportError as error:
        raise StartError(
            f"the wheel xllamacpp is not usable ({error}); install it with: pip install xllamacpp"
        ) from error
    return xllamacpp


def check_model(path: str) -> None:
    """Raise StartError unless `path` is a readable GGUF by its first bytes (the rest is llama.cpp's to judge)."""
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise StartError(f"cannot read the model {path}: {error.strerror}") from error
    if magic != b"GGUF":
        raise StartError(f"{path} is no GGUF file: it begins with {magic!r}")


def main(argv: list[str]) -> int:
    """Run until SIGTERM or SIGINT; 0 ended by one of them, 1 it could not start (as llama-server)."""
    if any(word in ("-h", "--help", "--usage") for word in argv):
        sys.stdout.write(help_text(TITLE, FLAGS))
        return 0
    try:
        if "--version" in argv:
            sys.stdout.write(f"version: xllamacpp {load_wheel().__version__}\n")
            return 0
        values = parse_flags(FLAGS, argv, os.environ)
        check_model(required_model(values))
        wheel = load_wheel()
        _serve(parameters(values, wheel), wheel)
    except (FlagError, StartError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _serve(params: Any, wheel: Any) -> NoReturn:
    # The constructor holds this thread until the model is loaded: until then signals keep their default action.
    try:
        server = wheel.Server(params)
    except (RuntimeError, ValueError, SystemError) as error:
        raise StartError(f"llama.cpp did not start: {error}") from error
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    # Any thread may be handed the signal; only the pipe surely wakes this one.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _noted)
    os.read(reader, 1)
    sys.stderr.write(f"xllamacpp_server: stopping, was listening on {server.listening_address}\n")
    sys.stderr.flush()
    # The wheel's destructor waits for every client that is still waiting for an answer (measured: as long as the client's
    # own timeout). There is nothing to save, so the process ends here, as a second signal would end llama-server.
    os._exit(0)


def _noted(number: int, frame: FrameType | None) -> None:
    """The wake-up pipe says it all; without a Python handler the default action would end the process."""
