"""What llama-server's HTTP answers say: /health, /slots, /metrics and /props.

Each body is text from a process we do not trust: it is decoded against a type that names only the fields we need, a body
that is too large, too deep or of another shape gives None for its fields, and nothing raises. A path that could not be read
holds "!reason" instead of a body. Field history: `next_token` was an object before it was an array; `state` (0 idle) came before
`is_processing`; `n_prompt_tokens_processed` is younger than `id_task`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from moetuned.parse.kernel_numbers import line_value
from moetuned.schema.sample import BackendHttp, Slot

MAX_BODY_CHARACTERS = 4 << 20
MAX_SLOTS = 256
_WANTS_KEY = "!401"
MAX_COUNT = 1 << 53
"""Larger token counts are no counts (and JSON numbers beyond it are not exact)."""


class _NextToken(msgspec.Struct):
    n_decoded: Any = None


class _Slot(msgspec.Struct):
    id: Any = None
    id_task: Any = None
    n_ctx: Any = None
    is_processing: Any = None
    state: Any = None
    n_prompt_tokens: Any = None
    n_prompt_tokens_processed: Any = None
    n_prompt_tokens_cache: Any = None
    next_token: list[_NextToken] | _NextToken | None = None


class _Error(msgspec.Struct):
    code: Any = None
    message: Any = None


class _Health(msgspec.Struct):
    status: Any = None
    error: _Error | str | None = None


class _Props(msgspec.Struct):
    is_sleeping: Any = None


_SLOTS = msgspec.json.Decoder(list[_Slot])
_HEALTH = msgspec.json.Decoder(_Health)
_PROPS = msgspec.json.Decoder(_Props)


def parse_llama_http(bodies: Mapping[str, str]) -> BackendHttp | None:
    """What the bodies by path say; None when nothing was asked."""
    if not bodies:
        return None
    metrics = _body(bodies.get("/metrics")) or ""
    return BackendHttp(
        health=_health(bodies.get("/health")),
        slots=_slots(bodies.get("/slots")),
        sleeping=_sleeping(_body(bodies.get("/props"))),
        tokens_predicted_total=_metric(metrics, "llamacpp:tokens_predicted_total"),
        prompt_tokens_total=_metric(metrics, "llamacpp:prompt_tokens_total"),
        decode_calls_total=_metric(metrics, "llamacpp:n_decode_total"),
        requests_processing=_metric(metrics, "llamacpp:requests_processing"),
        requests_deferred=_metric(metrics, "llamacpp:requests_deferred"),
        slots_asked="/slots" in bodies,
        wants_key=any(bodies.get(path, "").startswith(_WANTS_KEY) for path in ("/slots", "/metrics")),
    )


def _body(text: str | None) -> str | None:
    return None if text is None or text.startswith("!") or len(text) > MAX_BODY_CHARACTERS else text


def _health(text: str | None) -> str | None:
    """One of ok, loading, unreachable, busy, error; None when not asked.

    A 503 is what llama-server answers while it loads; a timeout means busy, not dead.
    """
    if text is None:
        return None
    if text.startswith("!"):
        return _failure(text[1:256].lower())
    decoded = _decode(_HEALTH, _body(text))
    if not isinstance(decoded, _Health):
        return "error"
    if decoded.status in ("ok", "no slot available"):
        return "ok"
    code = decoded.error.code if isinstance(decoded.error, _Error) else None
    return "loading" if code == 503 or decoded.status == "loading model" else "error"


def _failure(reason: str) -> str:
    if "503" in reason or reason == "httperror":
        return "loading"
    if "timeout" in reason or "timed out" in reason:
        return "busy"
    if any(word in reason for word in ("refused", "urlerror", "connect", "unreachable", "remote")):
        return "unreachable"
    return "error"


def _slots(body: str | None) -> tuple[Slot, ...] | None:
    decoded = needed_slots(body)
    return None if decoded is None else tuple(_slot(position, slot) for position, slot in enumerate(decoded))


def needed_slots(body: str | None) -> list[Any] | None:
    """The fields of /slots that are needed here, with the values that came; None for a body that makes no sense."""
    decoded = _decode(_SLOTS, _body(body))
    return decoded if isinstance(decoded, list) and len(decoded) <= MAX_SLOTS else None


def _slot(position: int, slot: _Slot) -> Slot:
    slot_id = _count(slot.id)
    processing = slot.is_processing if isinstance(slot.is_processing, bool) else None
    if processing is None and _count(slot.state) is not None:
        processing = slot.state != 0
    token = slot.next_token
    if isinstance(token, list):
        token = token[0] if token else None
    return Slot(
        slot_id=position if slot_id is None else slot_id,
        processing=processing,
        task_id=_count(slot.id_task),
        context_length=_count(slot.n_ctx),
        prompt_tokens=_count(slot.n_prompt_tokens),
        prompt_tokens_processed=_count(slot.n_prompt_tokens_processed),
        decoded_tokens=None if token is None else _count(token.n_decoded),
        prompt_tokens_cached=_count(slot.n_prompt_tokens_cache),
    )


def _sleeping(body: str | None) -> bool | None:
    decoded = _decode(_PROPS, body)
    return decoded.is_sleeping if isinstance(decoded, _Props) and isinstance(decoded.is_sleeping, bool) else None


def _decode(decoder: msgspec.json.Decoder[Any], body: str | None) -> object:
    if body is None:
        return None
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_COUNT:
        return None
    return value


def _metric(metrics: str, name: str) -> float | None:
    text = line_value(metrics, name, " ")
    if text is None or len(text) > 64:
        return None
    try:
        value = float(text.split()[0])
    except (ValueError, IndexError):
        return None
    return value if math.isfinite(value) and 0 <= value < MAX_COUNT else None
