"""Sink `ntfy`: a push message to the phones and browsers that subscribe to a topic of an ntfy server, ntfy.sh or one of your own.

Title and text are the event's, the priority goes by how bad it is (critical events urgent, warnings high, others default) unless
`priority` says otherwise for the event, and tags put a sign in front. What is in `click` is opened when it is tapped. From ntfy 2.16 on the end of
something takes the place of the message that told of it; before, it is a message of its own.

Whoever knows a topic's name can read along: choose one that nobody guesses, or protect it on a server of your own and give an access token in
`token_file`. It is posted as JSON to the server's root, which is where ntfy takes titles in any language.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import msgspec

from moetuned.alerts import Runs, SinkResult
from moetuned.decide import alert_text
from moetuned.parse.alert_url import shown_url
from moetuned.schema.alert import NtfyAlert, Priority
from moetuned.schema.event import ENDS, Event, general
from moetuned.schema.severity import SEVERITY, Severity
from moetuned.schema.units import parse_duration

RUNS = Runs.CHILD
KEPT = True
SEQUENCE_ID = re.compile(r"[-_A-Za-z0-9]{1,64}")
PRIORITIES: Mapping[Priority, int] = {"min": 1, "low": 2, "default": 3, "high": 4, "urgent": 5}
_USUAL: Mapping[Severity, Priority] = {Severity.INFO: "default", Severity.WARNING: "high", Severity.CRITICAL: "urgent"}
_SIGNS: Mapping[Severity, str] = {
    Severity.INFO: "white_check_mark",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "rotating_light",
}
_AUTHORIZATION = re.compile(r"Bearer [!-~]{1,1000}")


def target(config: NtfyAlert) -> str:
    """The server; the topic is as good as a password."""
    return shown_url(config.url)


def send(event: Event, config: NtfyAlert) -> list[SinkResult]:
    """Post one message. Never raises because of what the server does."""
    from moetuned.host.http_post import post
    from moetuned.host.secret_file import SecretFileError, read_secret

    started = time.monotonic()
    base, _, topic = config.url.rstrip("/").rpartition("/")
    headers = {"Content-Type": "application/json"}
    try:
        if config.token_file is not None:
            headers["Authorization"] = f"Bearer {read_secret(config.token_file).strip()}"
    except SecretFileError as error:
        # It may be mended: what waits is not lost over it.
        return [SinkResult(target(config), False, str(error), retry=True)]
    if _AUTHORIZATION.fullmatch(headers.get("Authorization", "Bearer x")) is None:
        detail = f"{config.token_file} holds no token; it is one line of printable ASCII"
        return [SinkResult(target(config), False, detail, retry=True)]
    body = msgspec.json.encode(message_of(event, config, topic))
    posted = post(f"{base}/", body, headers, parse_duration(config.timeout))
    took = time.monotonic() - started
    return [SinkResult(target(config), posted.ok, posted.detail, took, posted.retry, posted.retry_after_seconds)]


def message_of(event: Event, config: NtfyAlert, topic: str) -> dict[str, object]:
    """The message as ntfy takes it as JSON (https://docs.ntfy.sh/publish/#publish-as-json); at most 4096 bytes of text."""
    severity = SEVERITY[event.name]
    priority = config.priority.get(event.name) or config.priority.get(general(event.name)) or _USUAL[severity]
    reasons = alert_text.reasons(event)
    message: dict[str, object] = {
        "topic": topic,
        "title": alert_text.title(event),
        "message": "\n".join(text for text in (alert_text.message(event), reasons) if text),
        "priority": PRIORITIES[priority],
        "tags": [_SIGNS[severity], event.name.value],
    }
    if config.click is not None:
        message["click"] = config.click
    # A new number for what begins anew, or tells that a restart failed: an app makes no sound for what takes another message's place
    # (setOnlyAlertOnce of Android).
    sequence = event.ended[0] if event.ended and event.name in ENDS else event.id
    if SEQUENCE_ID.fullmatch(sequence) is not None:
        message["sequence_id"] = sequence
    return message
