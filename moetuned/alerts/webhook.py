"""Sink `webhook`: each event as JSON in a POST to a URL.

The body is one object: `version` (1; it is raised where a field changes its meaning, not where one is added), `id` (of the event; the same
event may arrive twice, never with another id), `status` (`firing`, or `resolved` for an end), `keys` (what begins or ends: the same for a
begin and its end, for example `["glm/thrash_begin"]`; an end may have several), `closes` (keys of what is over with
one that is `firing`: how a restart that had begun came out), `event` (its name), `backend` (null: the machine), `message` (one sentence), `reasons` (texts), `time` (ISO 8601
in UTC), `wall_seconds` (Unix time), `host` (this machine's name) and `test` (true: somebody tries the sink). What has no end stays `firing`.

Any answer of 200 to 299 is good. 408, 425, 429, 500 and above, and no answer, are tried again, after 2 s and then later and later up to
5 min, or as `Retry-After` asks, up to an hour; what waits survives a restart. Any other answer is a refusal: that event is not tried again.
`headers_file` has headers to send, one a line. A redirect to another host is not followed. Certificates are judged by the system's store.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec

from moetuned.alerts import Runs, SinkResult
from moetuned.parse.alert_url import shown_url
from moetuned.parse.header_lines import header_lines
from moetuned.schema.alert import WebhookAlert
from moetuned.schema.event import ENDS, Event, EventName, begun_by
from moetuned.schema.units import parse_duration

RUNS = Runs.CHILD
KEPT = True
VERSION = 1


def target(config: WebhookAlert) -> str:
    """The URL's host."""
    return shown_url(config.url)


def send(event: Event, config: WebhookAlert) -> list[SinkResult]:
    """Send it once. Never raises for what the other side does."""
    from moetuned.host.http_post import post
    from moetuned.host.secret_file import SecretFileError, read_secret

    started = time.monotonic()
    headers = {"Content-Type": "application/json"}
    if config.headers_file is not None:
        try:
            headers |= header_lines(read_secret(config.headers_file))
        except (SecretFileError, ValueError) as error:
            text = str(error) if isinstance(error, SecretFileError) else f"{config.headers_file}: {error}"
            # It may be mended: what waits is not lost over it.
            return [SinkResult(target(config), False, text, retry=True)]
    posted = post(config.url, body(event), headers, parse_duration(config.timeout), config.proxy)
    return [
        SinkResult(
            target(config),
            posted.ok,
            posted.detail,
            time.monotonic() - started,
            posted.retry,
            posted.retry_after_seconds,
        )
    ]


def body(event: Event) -> bytes:
    """The event as the webhook gets it."""
    import socket

    return msgspec.json.encode(
        {
            "version": VERSION,
            "id": event.id,
            "status": "resolved" if event.name in ENDS else "firing",
            "keys": _keys(event, begun_by(event.name)),
            "closes": _keys(event, event.closes),
            "event": event.name,
            "backend": event.backend,
            "message": event.message,
            "reasons": [reason.text for reason in event.reasons],
            "time": _iso(event.wall_seconds),
            "wall_seconds": event.wall_seconds,
            "host": socket.gethostname(),
            "test": event.name is EventName.TEST,
        }
    )


def _keys(event: Event, names: tuple[EventName, ...]) -> list[str]:
    return [f"{event.backend or 'machine'}/{name}" for name in names]


def _iso(wall_seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None
