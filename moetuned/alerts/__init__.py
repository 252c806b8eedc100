"""Alert sinks, one file each, found by name.

A sink is a module `alerts/<kind>.py`; `kind` is what the configuration says. Its docstring is its entry in the manual. It has

- `send(event, config)`: one delivery. It may block for as long as the sink's `timeout` says, and never raises because of what it calls.
- `target(config)`: where it delivers to, for people; no path of a URL, no token: `parse.alert_url.shown_url` leaves them out.
- `RUNS`, where `send` is called: `Runs.CHILD` (also when the module does not say) in a short-lived process of its own, where it may import
  what it likes; `Runs.THREAD` in a thread of the daemon, for what only starts programs; `Runs.LOOP` in the daemon's loop, for what never
  waits.
- `KEPT`: whether what could not be delivered is kept on disk and tried again (False when the module does not say); then `send` says with
  `retry` whether that makes sense.
- `REPEAT_SECONDS`: what began, was delivered and has not ended is delivered again so often (never when the module does not say).

A delivery that went well for one of several results and wants no `retry` counts as delivered; what the others say is logged.

The daemon imports the modules that its config names. It is small: http, ssl, email and whatever else is large are imported inside `send`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from moetuned.schema.event import Event


class Runs(StrEnum):
    """Where a sink's `send` is called."""

    CHILD = "child"
    THREAD = "thread"
    LOOP = "loop"


class SinkResult(msgspec.Struct, frozen=True):
    """What became of one delivery. `target` is what was tried (a file, an address), `detail` one sentence; neither holds a secret.

    `retry`: it failed, and the same delivery may go well later; `retry_after_seconds`: no sooner than that, as the other side asks.
    """

    target: str
    ok: bool
    detail: str
    duration_seconds: float = 0.0
    retry: bool = False
    retry_after_seconds: float | None = None


Send = Callable[[Event, Any], Sequence[SinkResult]]


class SinkKind(msgspec.Struct, frozen=True):
    """A sink's module as the daemon sees it."""

    send: Send
    target: Callable[[Any], str]
    runs: Runs
    kept: bool
    repeat_seconds: float | None = None


def kinds() -> list[str]:
    """Kinds of sinks there are, sorted; imports none of them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def find(kind: str) -> SinkKind:
    """The sink `kind`; imports that one only. Raises LookupError naming the kinds there are."""
    if kind not in kinds():
        raise LookupError(f"alerts: there is no sink {kind!r}; there are: {', '.join(kinds())}")
    module = importlib.import_module(f"{__name__}.{kind}")
    return SinkKind(
        module.send,
        module.target,
        getattr(module, "RUNS", Runs.CHILD),
        getattr(module, "KEPT", False),
        getattr(module, "REPEAT_SECONDS", None),
    )
