"""What Ollama's HTTP answers say: /api/version and /api/ps of `ollama serve`, and /health of a runner.

/api/ps lists the models that are loaded (docs/api.md of Ollama). A runner's `status` is a number (llm/server.go: ready, no slots
available, launched, loading model, not responding, error) and was a word before 0.6. Neither tells of requests or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moetuned.parse.http_fields import body_of, count_of, decoded_by, failure
from moetuned.schema.sample import BackendHttp

VERSION, LOADED, HEALTH = "/api/version", "/api/ps", "/health"
MOST_LOADED = 256
_HEALTH_OF = {
    0: "ok", 1: "ok", 2: "loading", 3: "loading",
    "ok": "ok", "no slot available": "ok", "loading model": "loading",
}  # fmt: skip


class _Version(msgspec.Struct):
    version: Any = None


class _Model(msgspec.Struct):
    context_length: Any = None


class _Loaded(msgspec.Struct):
    models: list[_Model] | None = None


class _Status(msgspec.Struct):
    status: Any = None


_VERSION = msgspec.json.Decoder(_Version)
_LOADED = msgspec.json.Decoder(_Loaded)
_STATUS = msgspec.json.Decoder(_Status)


def parse_ollama_http(bodies: Mapping[str, str]) -> BackendHttp:
    """What `ollama serve` says. It "sleeps" while no model is loaded."""
    text = bodies.get(VERSION)
    loaded = decoded_by(_LOADED, body_of(bodies.get(LOADED)))
    models = loaded.models if isinstance(loaded, _Loaded) and len(loaded.models or ()) <= MOST_LOADED else None
    return BackendHttp(
        health=_health(text, isinstance(decoded_by(_VERSION, body_of(text)), _Version)),
        sleeping=None if models is None else not models,
        tells_slots=False,
        context_length=count_of(models[0].context_length) or None if models is not None and len(models) == 1 else None,
    )


def parse_ollama_runner_http(bodies: Mapping[str, str]) -> BackendHttp:
    """What a runner says."""
    text = bodies.get(HEALTH)
    said = decoded_by(_STATUS, body_of(text))
    status = said.status if isinstance(said, _Status) else None
    known = isinstance(status, int | str) and not isinstance(status, bool)
    return BackendHttp(health=_HEALTH_OF.get(status, "error") if known else _health(text, False), tells_slots=False)


def _health(text: str | None, good: bool) -> str | None:
    if text is None or good:
        return None if text is None else "ok"
    return failure(text[1:256].lower()) if text.startswith("!") else "error"
