"""Sink `alertmanager`: what begins fires an alert in Prometheus Alertmanager, its end resolves it (API v2, Alertmanager 0.16 and later).

Labels are `alertname` (MoetunedThrashing, MoetunedMemoryNearLimit, MoetunedBackendDown for all its kinds, …), `severity` (critical, warning
or info), `backend` (none for the machine), `instance` (the host's name, unless `labels` has another) and those of `labels`; they are the same
for begin and end. Annotations are `summary`, `description` (the sentence and the reasons), `event`, `event_id` and `runbook`.

Alertmanager forgets an alert that is not sent again, and keeps none over a restart of its own. So what goes on is sent again every 4
minutes and says each time that it lasts 15 minutes more: an Alertmanager that was started anew knows it after 4 minutes, two that are missed
change nothing, and one whose end cannot be told any more, as the machine is gone, ends after 15. What has no end, such as tuning_drifted,
fires for an hour, a test for a minute. The clocks of the two machines must not differ by minutes.

Each address of `urls` gets everything, as the members of a cluster expect. The delivery is tried again where none took it; a member
that was away gets what goes on with the next repeat. A password or token is a line of `headers_file`: `Authorization: Basic …` or `Bearer …`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from moetuned.alerts import Runs, SinkResult
from moetuned.decide import alert_text
from moetuned.parse.alert_url import shown_url
from moetuned.parse.header_lines import header_lines
from moetuned.schema.alert import AlertmanagerAlert
from moetuned.schema.event import ENDS, Event, EventName, begun_by, has_end
from moetuned.schema.severity import SEVERITY
from moetuned.schema.units import parse_duration

RUNS = Runs.CHILD
KEPT = True
REPEAT_SECONDS = 240.0
LASTS_SECONDS = 900.0
ONCE_SECONDS = 3600.0
TEST_SECONDS = 60.0
LABEL_BYTES = 200
HTTP_BAD_REQUEST = 400

ALERT_NAMES: Mapping[EventName, str] = {
    EventName.THRASH_BEGIN: "MoetunedThrashing",
    EventName.MEMORY_NEAR_LIMIT: "MoetunedMemoryNearLimit",
    EventName.BACKEND_DOWN: "MoetunedBackendDown",
    EventName.BACKEND_RESTARTING: "MoetunedBackendRestarting",
    EventName.BACKEND_NOT_RESTARTED: "MoetunedBackendNotRestarted",
    EventName.BACKEND_START_CHANGED: "MoetunedBackendStartChanged",
    EventName.RELIEF_EXHAUSTED: "MoetunedReliefExhausted",
    EventName.CACHE_EVICTED: "MoetunedCacheEvicted",
    EventName.TUNING_DRIFTED: "MoetunedTuningDrifted",
    EventName.DEVICE_UNSUITABLE: "MoetunedDeviceUnsuitable",
    EventName.TEST: "MoetunedTest",
}
"""Of everything that begins, kinds not told apart: an end could not know which it was."""


def target(config: AlertmanagerAlert) -> str:
    """Each host."""
    return ", ".join(shown_url(url) for url in config.urls)


def send(event: Event, config: AlertmanagerAlert) -> list[SinkResult]:
    """Post to each address, one after another; one that hangs takes no other's time. Never raises because of what they do."""
    from moetuned.host.http_post import post
    from moetuned.host.secret_file import SecretFileError, read_secret

    try:
        further = {} if config.headers_file is None else header_lines(read_secret(config.headers_file))
    except (SecretFileError, ValueError) as error:
        text = str(error) if isinstance(error, SecretFileError) else f"{config.headers_file}: {error}"
        # It may be mended: what waits is not lost over it.
        return [SinkResult(target(config), False, text, retry=True)]
    body = msgspec.json.encode(alerts_of(event, config.labels, socket.gethostname(), time.time()))
    headers = {"Content-Type": "application/json", **further}
    share = parse_duration(config.timeout) / len(config.urls)
    results = []
    for url in config.urls:
        started = time.monotonic()
        posted = post(f"{url.rstrip('/')}/api/v2/alerts", body, headers, share)
        detail = posted.detail
        if posted.status == HTTP_BAD_REQUEST:  # it says which alert it does not want, and why
            said = alert_text.one_line(posted.body.decode("utf-8", "replace"), alert_text.TITLE_BYTES)
            detail = f"{detail}: {said}"
        took = time.monotonic() - started
        results.append(SinkResult(shown_url(url), posted.ok, detail, took, posted.retry, posted.retry_after_seconds))
    if any(result.ok for result in results):
        # A member that is away must not hold up what the others are to be told next.
        return [msgspec.structs.replace(result, retry=False, retry_after_seconds=None) for result in results]
    return results


def alerts_of(
    event: Event, labels: Mapping[str, str], instance: str, now_wall_seconds: float
) -> list[dict[str, object]]:
    """The alerts that the event fires or resolves, as API v2 takes them.

    An end that comes late, after it waited for Alertmanager, ends the alert when it was over; what has begun lasts from now on. What
    tells how a restart failed fires and resolves.
    """
    annotations = {
        "summary": alert_text.title(event),
        "description": "\n".join(text for text in (alert_text.message(event), alert_text.reasons(event)) if text),
        "event": event.name.value,
        "event_id": alert_text.one_line(event.id, LABEL_BYTES),
        "runbook": f"moetunectl explain; docs/alerts/{event.name}.md",
    }
    if event.name in ENDS:
        times = {"endsAt": _time(event.wall_seconds)}
    else:
        lasts = LASTS_SECONDS if has_end(event.name) else ONCE_SECONDS
        lasts = TEST_SECONDS if event.name is EventName.TEST else lasts
        times = {
            "startsAt": _time(min(event.wall_seconds, now_wall_seconds)),
            "endsAt": _time(now_wall_seconds + lasts),
        }
    over = {"endsAt": _time(event.wall_seconds)}
    each = [(begun, times) for begun in begun_by(event.name)] + [(closed, over) for closed in event.closes]
    return [
        {"labels": _labels(event, begun, labels, instance), "annotations": annotations, **when} for begun, when in each
    ]


def _labels(event: Event, begun: EventName, labels: Mapping[str, str], instance: str) -> dict[str, str]:
    own = {"alertname": ALERT_NAMES[begun], "severity": SEVERITY[begun].value}
    if event.backend is not None:
        own["backend"] = alert_text.one_line(event.backend, LABEL_BYTES)
    return {"instance": instance, **labels, **own}


def _time(wall_seconds: float) -> str:
    """RFC 3339; a time that no calendar has is the beginning of Unix time."""
    try:
        at = datetime.fromtimestamp(wall_seconds, UTC)
    except (OverflowError, ValueError, OSError):
        at = datetime.fromtimestamp(0, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
