"""What KoboldCpp's HTTP answers say: /api/extra/perf and /api/extra/true_max_context_length.

`idle` is 0 while a request is worked on and `queue` counts those that wait (koboldcpp.py 1.102; `queue` since 1.46). It listens
once its model is loaded. Its counts of tokens are those of the last request that ended, so they tell nothing of the one that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moetuned.parse.http_fields import body_of, count_of, decoded_by, failure
from moetuned.schema.sample import BackendHttp

PERFORMANCE, CONTEXT = "/api/extra/perf", "/api/extra/true_max_context_length"


class _Performance(msgspec.Struct):
    idle: Any = None
    queue: Any = None


class _Value(msgspec.Struct):
    value: Any = None


_PERFORMANCE = msgspec.json.Decoder(_Performance)
_VALUE = msgspec.json.Decoder(_Value)


def parse_kobold_http(bodies: Mapping[str, str]) -> BackendHttp:
    """What the bodies by path say."""
    text = bodies.get(PERFORMANCE)
    if text is None:
        return BackendHttp(tells_slots=False)
    if text.startswith("!"):
        return BackendHttp(health=failure(text[1:256].lower()), tells_slots=False)
    said = decoded_by(_PERFORMANCE, body_of(text))
    if not isinstance(said, _Performance):
        return BackendHttp(health="error", tells_slots=False)
    context = decoded_by(_VALUE, body_of(bodies.get(CONTEXT)))
    idle, queue = count_of(said.idle), count_of(said.queue)
    return BackendHttp(
        health="ok",
        requests_processing=None if idle is None or idle > 1 else float(1 - idle),
        requests_deferred=None if queue is None else float(queue),
        tells_slots=False,
        context_length=count_of(context.value) or None if isinstance(context, _Value) else None,
    )
