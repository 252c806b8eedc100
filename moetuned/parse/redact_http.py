"""A backend's HTTP answers without anybody's text: for recordings that are sent to others.

/slots of llama-server may hold prompts, answers, grammars and templates. Nothing is cut out of an answer here: each is
written anew from the numbers and truths that `parse.llama_http` takes from it, so that what it says stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from moetuned.parse import kobold_http, llama_python_http, ollama_http
from moetuned.parse.backend_http import parse_backend_http
from moetuned.parse.http_fields import MAX_BODY_CHARACTERS, MAX_COUNT
from moetuned.parse.llama_http import needed_slots, parse_llama_http
from moetuned.schema.backend_abilities import Dialect

METRICS = frozenset(
    "llamacpp:" + name
    for name in (
        "prompt_tokens_total", "prompt_seconds_total", "tokens_predicted_total", "tokens_predicted_seconds_total",
        "n_decode_total", "n_tokens_max", "n_busy_slots_per_decode", "prompt_tokens_seconds", "predicted_tokens_seconds",
        "kv_cache_usage_ratio", "kv_cache_tokens", "requests_processing", "requests_deferred",
    )
)  # fmt: skip
"""What llama-server counts (tools/server/README.md)."""
_MOST_DIGITS = 64
_MOST_STRUCTS = 4
_HEALTH = {
    "ok": '{"status":"ok"}',
    "loading": '{"error":{"code":503,"message":"Loading model"}}',
    "error": '{"error":{"code":500}}',
}
_FAILURES = {"loading": "!503", "busy": "!timeout", "unreachable": "!refused"}
_NOT_UNDERSTOOD = "!not understood"


def redact_http(bodies: Mapping[str, str], dialect: Dialect = Dialect.LLAMA) -> dict[str, str]:
    """The answers by path, each saying the same to the parser of `dialect`; other paths than those it reads are left out.

    Of the dialect "generic" nothing is kept: only the config knows what its lines mean.
    """
    if dialect is not Dialect.LLAMA:
        return {
            path: _other(body, dialect, path) for path, body in bodies.items() if path in _OTHER_PATHS.get(dialect, ())
        }
    return {path: _REDACT[path](body) for path, body in bodies.items() if path in _REDACT}


def _other(body: str, dialect: Dialect, path: str) -> str:
    """An answer written anew from what it says."""
    if body.startswith("!"):
        return _failure(body)
    # Without a good answer of the first path the second is not looked at.
    said = parse_backend_http({_OTHER_PATHS[dialect][0]: "{}", path: body}, dialect)
    if said is None or said.health == "error":
        return _NOT_UNDERSTOOD
    match path:
        case kobold_http.PERFORMANCE:
            idle = None if said.requests_processing is None else 1 - round(said.requests_processing)
            queue = None if said.requests_deferred is None else round(said.requests_deferred)
            return msgspec.json.encode({"idle": idle, "queue": queue}).decode()
        case kobold_http.CONTEXT:
            return msgspec.json.encode({"value": said.context_length}).decode()
        case ollama_http.LOADED:
            if said.sleeping is None:
                return _NOT_UNDERSTOOD
            models = [] if said.sleeping else [{"context_length": said.context_length}]
            return msgspec.json.encode({"models": models}).decode()
        case ollama_http.HEALTH:
            return '{"status":0}' if said.health == "ok" else '{"status":3}'
        case _:
            return "{}"


def _health(body: str) -> str:
    said = _said(health=body).health or "error"
    return _failure(body) if body.startswith("!") else _HEALTH[said]


def _failure(body: str) -> str:
    """Why there was no answer. A server's own words go, the number of its status stays."""
    said = _said(health=body).health or "error"
    number = re.match(r"!([1-5]\d\d)\b", body)
    if number is not None and _said(health=number[0]).health == said:
        return number[0]
    return body if body == _NOT_UNDERSTOOD else _FAILURES.get(said, "!error")


def _props(body: str) -> str:
    if body.startswith("!"):
        return _failure(body)
    sleeping = _said(props=body).sleeping
    return "{}" if sleeping is None else msgspec.json.encode({"is_sleeping": sleeping}).decode()


def _slots(body: str) -> str:
    if body.startswith("!"):
        return _failure(body)
    slots = needed_slots(body)
    return _NOT_UNDERSTOOD if slots is None else msgspec.json.encode([_known(slot) for slot in slots]).decode()


def _known(value: Any) -> Any:
    """Whole numbers and truths under the names that the parser's types have; anything else is unknown there."""
    if isinstance(value, msgspec.Struct):
        return {name: _known(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list) and all(isinstance(one, msgspec.Struct) for one in value):
        return [_known(one) for one in value[:_MOST_STRUCTS]]
    if isinstance(value, bool) or (isinstance(value, int) and 0 <= value < MAX_COUNT):
        return value
    return None


def _metrics(body: str) -> str:
    if body.startswith("!"):
        return _failure(body)
    if len(body) > MAX_BODY_CHARACTERS:
        return _NOT_UNDERSTOOD
    kept: dict[str, str] = {}
    for line in body.split("\n")[:-1]:  # what has no newline behind it was cut
        name, space, value = line.partition(" ")
        if space and name in METRICS and name not in kept:
            kept[name] = f"{name} {_number(value)}\n"
    return "".join(kept.values())


def _number(text: str) -> str:
    try:
        value = float(text.split(maxsplit=1)[0]) if len(text) <= _MOST_DIGITS else None
    except (ValueError, IndexError):
        value = None
    return "unknown" if value is None else repr(value)


def _said(*, health: str | None = None, props: str | None = None) -> Any:
    bodies = {"/health": health, "/props": props}
    return parse_llama_http({path: body for path, body in bodies.items() if body is not None})


_OTHER_PATHS: dict[Dialect, tuple[str, ...]] = {
    Dialect.LLAMA_PYTHON: (llama_python_http.PAGE,),
    Dialect.KOBOLD: (kobold_http.PERFORMANCE, kobold_http.CONTEXT),
    Dialect.OLLAMA: (ollama_http.VERSION, ollama_http.LOADED),
    Dialect.OLLAMA_RUNNER: (ollama_http.HEALTH,),
}
_REDACT = {"/health": _health, "/props": _props, "/slots": _slots, "/metrics": _metrics}
