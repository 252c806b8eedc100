"""Alert sinks, one file each, found by name.

A sink is a module `alerts/<kind>.py` with `send(event, config)`; `kind` is what the configuration says. Its docstring
is its entry in the manual. `send` runs in a worker thread, may block for as long as its own time-out says, and never
raises because of what it calls.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from moetuned.schema.event import Event


class SinkResult(msgspec.Struct, frozen=True):
    """What became of one delivery. `target` is what was tried (a file, an address), `detail` one sentence."""

    target: str
    ok: bool
    detail: str
    duration_seconds: float = 0.0


Send = Callable[[Event, Any], Sequence[SinkResult]]


def kinds() -> list[str]:
    """Kinds of sinks there are, sorted; imports none of them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(kind: str) -> Send:
    """The `send` of the sink `kind`; imports that sink only. Raises LookupError naming the kinds there are."""
    if kind not in kinds():
        raise LookupError(f"alerts: there is no sink {kind!r}; there are: {', '.join(kinds())}")
    return cast("Send", importlib.import_module(f"{__name__}.{kind}").send)
