"""Requests to the stand-in and its answers, in the shapes of llama-server's HTTP API. Pure: bytes and numbers in, data out."""

from __future__ import annotations

from typing import Any

import msgspec

from moetuned.simulator.engine import Counters, Plan, Task
from moetuned.simulator.topics import topic_of_text

BUILD_INFO = "moetuned-simulator"
_NO_LIMIT = 1 << 30


class RequestError(Exception):
    """A request cannot be answered; `status` is the HTTP status and `body` the error object to send."""

    def __init__(self, status: int, kind: str, message: str, **more: int) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": status, "message": message, "type": kind, **more}}


class _Completion(msgspec.Struct):
    prompt: str | list[int]
    n_predict: int | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False
    stream: bool = False
    seed: int | None = None


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    role: str = "user"


class _Chat(msgspec.Struct):
    messages: list[_Message]
    n_predict: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    ignore_eos: bool = False
    stream: bool = False
    seed: int | None = None


_COMPLETION = msgspec.json.Decoder(_Completion)
_CHAT = msgspec.json.Decoder(_Chat)


def completion_task(body: bytes, plan: Plan, default_predict: int) -> Task:
    """The task a `/completion` body asks for. Raises RequestError."""
    request = _decode(_COMPLETION, body)
    prompt = request.prompt
    # A token is a byte: the stand-in has no tokenizer, and the models made here have a vocabulary of bytes.
    data = prompt.encode() if isinstance(prompt, str) else bytes(token % 256 for token in prompt)
    return _task(data, request, (request.n_predict, request.max_tokens), plan, default_predict)


def chat_task(body: bytes, plan: Plan, default_predict: int) -> Task:
    """The task a `/v1/chat/completions` body asks for. Raises RequestError."""
    request = _decode(_CHAT, body)
    texts = [
        "".join(part.text for part in message.content) if isinstance(message.content, list) else message.content or ""
        for message in request.messages
    ]
    limits = (request.max_completion_tokens, request.max_tokens, request.n_predict)
    return _task("\n".join(texts).encode(), request, limits, plan, default_predict)


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(400, "invalid_request_error", str(error)) from error


def _task(
    data: bytes, request: _Completion | _Chat, limits: tuple[int | None, ...], plan: Plan, default_predict: int
) -> Task:
    if request.stream:
        raise RequestError(501, "not_supported_error", f"{BUILD_INFO} does not stream; send stream: false")
    if len(data) >= plan.slot_context:
        raise RequestError(
            400,
            "exceed_context_size_error",
            f"request ({len(data)} tokens) exceeds the available context size ({plan.slot_context} tokens), try increasing it",
            n_prompt_tokens=len(data),
            n_ctx=plan.slot_context,
        )
    limit = next((one for one in limits if one is not None), default_predict)
    return Task(
        prompt_tokens=max(len(data), 1),
        topic=topic_of_text(data),
        limit=limit if limit > 0 else _NO_LIMIT,
        ignore_eos=request.ignore_eos,
        seed=request.seed if request.seed is not None else 0,
    )


def timings(task: Task) -> dict[str, int | float]:
    """The `timings` object of a finished task."""
    return {
        "cache_n": task.cached,
        "prompt_n": task.processed - task.cached,
        "prompt_ms": task.prompt_seconds * 1e3,
        "prompt_per_token_ms": task.prompt_seconds * 1e3 / max(task.processed, 1),
        "prompt_per_second": task.processed / max(task.prompt_seconds, 1e-9),
        "predicted_n": task.decoded,
        "predicted_ms": task.predicted_seconds * 1e3,
        "predicted_per_token_ms": task.predicted_seconds * 1e3 / max(task.decoded, 1),
        "predicted_per_second": task.decoded / task.predicted_seconds if task.predicted_seconds > 0 else 0.0,
    }


def completion_answer(task: Task, model: str) -> dict[str, Any]:
    """The body that answers `/completion`."""
    return {
        "index": 0,
        "content": "".join(task.text),
        "tokens": [],
        "id_slot": task.slot,
        "stop": True,
        "model": model,
        "tokens_predicted": task.decoded,
        "tokens_evaluated": task.processed,
        "generation_settings": {
            "n_predict": task.limit,
            "ignore_eos": task.ignore_eos,
            "seed": task.seed,
            "stream": False,
        },
        "has_new_line": False,
        "truncated": task.truncated,
        "stop_type": task.stop_type,
        "stopping_word": "",
        "tokens_cached": task.position - 1,
        "timings": timings(task),
    }


def chat_answer(task: Task, model: str, created: int) -> dict[str, Any]:
    """The body that answers `/v1/chat/completions`; `created` is Unix seconds."""
    return {
        "choices": [
            {
                "finish_reason": "stop" if task.stop_type == "eos" else "length",
                "index": 0,
                "message": {"role": "assistant", "content": "".join(task.text)},
            }
        ],
        "created": created,
        "model": model,
        "system_fingerprint": BUILD_INFO,
        "object": "chat.completion",
        "usage": {"completion_tokens": task.decoded, "prompt_tokens": task.processed, "total_tokens": task.position},
        "id": f"chatcmpl-{BUILD_INFO}-{task.number}",
        "timings": timings(task),
    }


def props(plan: Plan, model: str, *, metrics: bool, slots: bool) -> dict[str, Any]:
    """The body of `/props`."""
    return {
        "default_generation_settings": {
            "params": {"n_predict": -1, "ignore_eos": False, "stream": False},
            "n_ctx": plan.slot_context,
        },
        "total_slots": plan.slots,
        "model_alias": model,
        "model_path": model,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": slots,
        "endpoint_props": False,
        "endpoint_metrics": metrics,
        "chat_template": "",
        "build_info": BUILD_INFO,
        "is_sleeping": False,
    }


def metrics_text(counters: Counters, processing: int, deferred: int) -> str:
    """`/metrics` with the names llama-server uses. The two average speeds are since the start, not since the last scrape."""
    decodes, prompt, predicted = counters.decodes, counters.prompt_seconds, counters.predicted_seconds
    rows: list[tuple[str, str, str, float]] = [
        (
            "prompt_tokens_total",
            "counter",
            "Number of prompt tokens processed, excluding cached tokens",
            counters.prompt_tokens,
        ),
        ("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache", 0),
        ("prompt_seconds_total", "counter", "Total time spent processing prompts", prompt),
        ("tokens_predicted_total", "counter", "Number of generation tokens processed", counters.predicted_tokens),
        ("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens", predicted),
        ("n_decode_total", "counter", "Total number of decode calls", decodes),
        ("n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)", counters.longest),
        (
            "prompt_tokens_seconds",
            "gauge",
            "Average prompt throughput in tokens/s",
            counters.prompt_tokens / prompt if prompt else 0,
        ),
        (
            "predicted_tokens_seconds",
            "gauge",
            "Average generation throughput in tokens/s",
            counters.predicted_tokens / predicted if predicted else 0,
        ),
        ("requests_processing", "gauge", "Number of requests processing", processing),
        ("requests_deferred", "gauge", "Number of requests deferred", deferred),
        (
            "n_busy_slots_per_decode",
            "gauge",
            "Average number of busy slots per decode call",
            counters.busy_slots / decodes if decodes else 0,
        ),
    ]
    return "".join(
        f"# HELP llamacpp:{name} {text}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value:.15g}\n"
        for name, kind, text, value in rows
    )
