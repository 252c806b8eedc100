"""What llama-cpp-python's server answers over HTTP: that it listens, and nothing else.

It listens once its model is loaded. It has neither /health nor slots nor metrics, and /v1/models must not be asked: the question
waits for the request that runs, and ends that request's stream early (`interrupt_requests`, on by default; measured with 0.3.36).
So its page of documentation is asked, which needs no model.
"""

from __future__ import annotations

from collections.abc import Mapping

from moetuned.parse.http_fields import failure
from moetuned.schema.sample import BackendHttp

PAGE = "/docs"


def parse_llama_python_http(bodies: Mapping[str, str]) -> BackendHttp:
    """What the bodies by path say. Any answer says that it listens, also that there is no such page."""
    return BackendHttp(health=listens(bodies.get(PAGE)), tells_slots=False)


def listens(text: str | None) -> str | None:
    """`health` of a server for which every answer of HTTP below 500 is a good one; None when it was not asked."""
    if text is None:
        return None
    if not text.startswith("!"):
        return "ok"
    reason = text[1:256].lower()
    return "ok" if reason[:1] in ("2", "3", "4") and reason[:3].isdigit() else failure(reason)
