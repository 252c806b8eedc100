"""Alert sinks as `moetunectl alerts` shows them: JSON of /v1/alerts. Fields are added, never renamed. No secret is in it."""

from __future__ import annotations

import msgspec

from moetuned.schema.event import EventName


class DeliveryView(msgspec.Struct, frozen=True):
    """One try. `detail`: what came of it, one sentence; `wall_seconds`: when it ended (Unix time)."""

    event: EventName
    event_id: str
    ok: bool
    detail: str
    wall_seconds: float
    duration_seconds: float = 0.0


class AlertSinkView(msgspec.Struct, frozen=True):
    """One sink. `target`: where it delivers to, without what may be a secret. `kept`: what cannot be delivered is kept and tried again.

    `waiting`: how many are to be delivered; `tries`: how often the first of them was tried in vain; `next_try_seconds`: until it is tried
    again, None: none waits for that. `held`: in quiet hours or by the rate limit, until they may go; `held_back`: never went, to be told
    with the next. `dropped`, `failed`: since the sink is there, because too much waited, and because the other side refused them or nothing is
    tried again.
    `last`: the last try; `tested`: the last try by hand. `problem`: what is wrong with the sink itself.
    """

    name: str
    kind: str
    target: str
    on: tuple[EventName, ...] = ()
    ends: bool = True
    backends: tuple[str, ...] = ()
    at_most: str | None = None
    quiet_hours: str | None = None
    loud: tuple[EventName, ...] = ()
    timeout_seconds: float = 0.0
    kept: bool = False
    sending: bool = False
    waiting: int = 0
    tries: int = 0
    next_try_seconds: float | None = None
    held: int = 0
    held_back: int = 0
    dropped: int = 0
    failed: int = 0
    last: DeliveryView | None = None
    tested: DeliveryView | None = None
    problem: str | None = None


class AlertsAnswer(msgspec.Struct, frozen=True):
    """All sinks of the config, in its order."""

    sinks: tuple[AlertSinkView, ...] = ()


class AlertTestAnswer(msgspec.Struct, frozen=True):
    """A test that has begun: `tested` of these sinks says what became of it once it has this event's id."""

    event_id: str
    sinks: tuple[str, ...]
