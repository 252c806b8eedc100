"""`python -m moetuned.simulator serve -m MODEL`: a stand-in for llama-server that makes its paging, not its text.

It maps the model for real and touches, for every token, what a Mixture-of-Experts model touches; it holds a KV cache and a
prompt cache in anonymous memory; it answers llama-server's endpoints. What it "says" is noise, and it never repacks weights.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping

from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_cache import KvSettings, kv_bytes_per_token, kv_cache
from moetuned.gguf.metadata import architecture, integer
from moetuned.host.model_files import ModelFile, ModelFileError, read_model
from moetuned.simulator.anonymous_memory import AnonymousMemory, PromptCache
from moetuned.simulator.engine import Engine, Plan
from moetuned.simulator.http_server import Listener, Service
from moetuned.simulator.model_map import ModelMap
from moetuned.simulator.router import TopicRouter
from moetuned.xllamacpp_server.flags import (
    LLAMA_SERVER_FLAGS,
    Flag,
    FlagError,
    Value,
    help_text,
    parse_flags,
    required_model,
)

TITLE = """\
usage: python -m moetuned.simulator serve -m MODEL [flags]

A stand-in for llama-server: a load generator for paging, not a language model; its answers are noise. It takes
llama-server's flags; those about prompt threads, GPUs, flash attention, checkpoints, fitting, warm-up and repacking are
accepted and change nothing. --load-mode must map the file (auto, mmap). The --simulate flags are faults for tests."""

FAULT_FLAGS: tuple[Flag, ...] = (
    Flag(
        "hang_after",
        ("--simulate-hang-after",),
        "stop decoding after N tokens, answer HTTP on (-1 = never)",
        -1,
        "N",
        least=-1,
    ),
    Flag(
        "exit_code",
        ("--simulate-exit-code",),
        "exit with N in the middle of the load (-1 = do not)",
        -1,
        "N",
        least=-1,
        most=255,
    ),
    Flag(
        "flaky_health",
        ("--simulate-flaky-health",),
        "answer every Nth request for /health as if it loaded (0 = none)",
        0,
        "N",
        least=0,
    ),
    Flag("ignore_sigterm", ("--simulate-ignore-sigterm",), "ignore SIGTERM", False),
)
_FINISHED = signal.SIGUSR1


class LoadError(Exception):
    """The stand-in cannot start; the message says why. `status` is its exit code."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def make_plan(values: Mapping[str, Value], model: ModelFile) -> tuple[Plan, int]:
    """Sizes for the engine and the bytes of its KV cache. Raises LoadError for a model or settings it cannot serve."""
    metadata = model.headers[0].metadata
    if model.experts is None:
        raise LoadError(f"{model.identity.paths[0]}: {model.identity.unknown}")
    try:
        context = _number(values, "context") or integer(metadata, f"{architecture(metadata)}.context_length") or 0
        automatic = _number(values, "parallel") < 1
        slots = 4 if automatic else _number(values, "parallel")
        unified = bool(values["kv_unified"]) or automatic
        settings = KvSettings(
            context,
            slots,
            unified,
            type_k=str(values["cache_type_k"]),
            type_v=str(values["cache_type_v"]),
            ubatch_tokens=_number(values, "ubatch"),
        )
        total = kv_cache(metadata, settings).total_bytes
        per_token = kv_bytes_per_token(metadata, settings.type_k, settings.type_v)
    except (GgufError, ValueError) as error:
        raise LoadError(str(error)) from error
    context = -(-context // 256) * 256
    plan = Plan(
        layers=model.experts.layers,
        slots=slots,
        slot_context=context if unified else -(-(context // slots) // 256) * 256,
        batch=_number(values, "batch"),
        ubatch=min(_number(values, "ubatch"), _number(values, "batch")),
        kv_bytes_per_token=per_token,
        hang_after_tokens=None if values["hang_after"] == -1 else _number(values, "hang_after"),
    )
    return plan, total


def _number(values: Mapping[str, Value], key: str) -> int:
    return int(values[key])


def _threads(values: Mapping[str, Value]) -> int:
    asked = _number(values, "threads")
    return asked if asked > 0 else len(os.sched_getaffinity(0))


def load(values: Mapping[str, Value], model: ModelFile) -> Engine:
    """Map and stream the model, allocate the caches. Raises LoadError."""
    if values["load_mode"] not in ("auto", "mmap"):
        raise LoadError(f"--load-mode {values['load_mode']}: the stand-in only maps; use auto or mmap")
    plan, kv_bytes = make_plan(values, model)
    experts = model.experts
    if experts is None:
        raise LoadError(f"{model.identity.paths[0]}: its layout is unknown")
    exit_code = _number(values, "exit_code")

    def streamed(done: int) -> None:
        if exit_code >= 0 and done * 2 >= model.identity.size_bytes:
            raise LoadError(f"simulated failure in the load (--simulate-exit-code {exit_code})", exit_code)

    try:
        mapped = ModelMap(model.identity.paths, experts, _threads(values))
        mapped.stream(streamed)
        kv = AnonymousMemory(kv_bytes)
    except OSError as error:
        raise LoadError(f"cannot map {model.identity.paths[0]} or allocate its KV cache: {error.strerror}") from error
    limit = _number(values, "cache_ram")
    cache = PromptCache(None if limit == -1 else limit << 20)
    return Engine(plan, mapped, TopicRouter(experts.experts, experts.used), kv, cache)


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; 0 ended by one of them, 1 it could not start or load (as llama-server)."""
    flags = (*LLAMA_SERVER_FLAGS, *FAULT_FLAGS)
    if any(word in ("-h", "--help", "--usage") for word in argv):
        print(help_text(TITLE, flags), end="")
        return 0
    # Blocked before any thread starts, so that every thread inherits it and only this one waits for them.
    waited = {signal.SIGTERM, signal.SIGINT, _FINISHED}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        values = parse_flags(flags, argv, os.environ)
        model = read_model(required_model(values))
        service = Service(
            str(values["model"]),
            metrics=bool(values["metrics"]),
            slots=bool(values["slots"]),
            default_predict=_number(values, "predict"),
            slot_directory=str(values["slot_save_path"]),
            flaky_health=_number(values, "flaky_health"),
        )
        listener = Listener(str(values["host"]), _number(values, "port"), service, _number(values, "timeout"))
    except (FlagError, ModelFileError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: cannot listen on {values['host']}:{values['port']}: {error.strerror or error}", file=sys.stderr)
        return 1
    print(
        f"moetuned-simulator: listening on http://{values['host']}:{listener.server_port}, loading",
        file=sys.stderr,
        flush=True,
    )
    # The interval only bounds how fast shutdown() is noticed, which is never called.
    threading.Thread(target=listener.serve_forever, args=(600.0,), daemon=True, name="http").start()
    failure: list[int] = []
    threading.Thread(target=_work, args=(values, model, service, failure), daemon=True, name="decode").start()
    while True:
        number = signal.sigwait(waited)
        if failure or number == signal.SIGINT or (number == signal.SIGTERM and not values["ignore_sigterm"]):
            # Not a normal exit: it would wait for a page fault of the decode thread to end first.
            sys.stderr.flush()
            os._exit(failure[0] if failure else 0)


def _hang() -> None:
    print("moetuned-simulator: simulating a hang", file=sys.stderr, flush=True)
    threading.Event().wait()


def _work(values: Mapping[str, Value], model: ModelFile, service: Service, failure: list[int]) -> None:
    """The decode thread: load, then decode for ever; a failure is left in `failure` and the main thread woken."""
    status = 1
    try:
        engine = load(values, model)
        service.engine = engine
        print("moetuned-simulator: model loaded", file=sys.stderr, flush=True)
        engine.run(_hang)
    except LoadError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        status = error.status
    except OSError as error:
        print(f"error: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        failure.append(status)
        os.kill(os.getpid(), _FINISHED)
