"""What llama-server's HTTP answers say: /health, /slots, /metrics and /props.

Each body is text from a process we do not trust: it is decoded against a type that names only the fields we need, a body
that is too large, too deep or of another shape gives None for its fields, and nothing raises. A path that could not be read
holds "!reason" instead of a body. Field history: `next_token` was an object before it was an array; `state` (0 idle) came before
`is_processing`; `n_prompt_tokens_processed` is younger than `id_task`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moetuned.parse.http_fields import body_of, count_of, decoded_by, failure, metric_of
from moetuned.schema.sample import BackendHttp, Slot

MAX_SLOTS = 256
_WANTS_KEY = "!401"


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
    metrics = body_of(bodies.get("/metrics")) or ""
    return BackendHttp(
        health=_health(bodies.get("/health")),
        slots=_slots(bodies.get("/slots")),
        sleeping=_sleeping(body_of(bodies.get("/props"))),
        tokens_predicted_total=metric_of(metrics, "llamacpp:tokens_predicted_total"),
        prompt_tokens_total=metric_of(metrics, "llamacpp:prompt_tokens_total"),
        decode_calls_total=metric_of(metrics, "llamacpp:n_decode_total"),
        requests_processing=metric_of(metrics, "llamacpp:requests_processing"),
        requests_deferred=metric_of(metrics, "llamacpp:requests_deferred"),
        slots_asked="/slots" in bodies,
        wants_key=any(bodies.get(path, "").startswith(_WANTS_KEY) for path in ("/slots", "/metrics")),
    )


def _health(text: str | None) -> str | None:
    """One of ok, loading, unreachable, busy, error; None when not asked.

    A 503 is what llama-server answers while it loads; a timeout means busy, not dead.
    """
    if text is None:
        return None
    if text.startswith("!"):
        return failure(text[1:256].lower())
    decoded = decoded_by(_HEALTH, body_of(text))
    if not isinstance(decoded, _Health):
        return "error"
    if decoded.status in ("ok", "no slot available"):
        return "ok"
    code = decoded.error.code if isinstance(decoded.error, _Error) else None
    return "loading" if code == 503 or decoded.status == "loading model" else "error"


def _slots(body: str | None) -> tuple[Slot, ...] | None:
    decoded = needed_slots(body)
    return None if decoded is None else tuple(_slot(position, slot) for position, slot in enumerate(decoded))


def needed_slots(body: str | None) -> list[Any] | None:
    """The fields of /slots that are needed here, with the values that came; None for a body that makes no sense."""
    decoded = decoded_by(_SLOTS, body_of(body))
    return decoded if isinstance(decoded, list) and len(decoded) <= MAX_SLOTS else None


def _slot(position: int, slot: _Slot) -> Slot:
    slot_id = count_of(slot.id)
    processing = slot.is_processing if isinstance(slot.is_processing, bool) else None
    if processing is None and count_of(slot.state) is not None:
        processing = slot.state != 0
    token = slot.next_token
    if isinstance(token, list):
        token = token[0] if token else None
    return Slot(
        slot_id=position if slot_id is None else slot_id,
        processing=processing,
        task_id=count_of(slot.id_task),
        context_length=count_of(slot.n_ctx),
        prompt_tokens=count_of(slot.n_prompt_tokens),
        prompt_tokens_processed=count_of(slot.n_prompt_tokens_processed),
        decoded_tokens=None if token is None else count_of(token.n_decoded),
        prompt_tokens_cached=count_of(slot.n_prompt_tokens_cache),
    )


def _sleeping(body: str | None) -> bool | None:
    decoded = decoded_by(_PROPS, body)
    return decoded.is_sleeping if isinstance(decoded, _Props) and isinstance(decoded.is_sleeping, bool) else None
