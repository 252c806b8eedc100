"""What `moetunectl backend show` prints: a pure function of one backend. What came from outside is stripped of control characters."""

from __future__ import annotations

import shlex
import textwrap
import time
from collections.abc import Iterator

import click

from moetuned.cli.text_width import printable
from moetuned.schema.model import ModelLayout
from moetuned.schema.snapshot import BackendView
from moetuned.schema.supervision import Restart
from moetuned.schema.units import format_bytes, format_duration

_LABEL_WIDTH = 18
_NAMES = {"prompt_cache_mib": "prompt cache (MiB)", "cache_type": "KV cache type", "checkpoints": "checkpoints a slot"}
_CAUSES = {
    "relief": "to free memory",
    "return": "to give back what that took",
    "by_hand": "by hand",
    "exit": "because it had ended",
}


def sheet(view: BackendView, width: int, colour: bool, now: float) -> str:
    """The whole sheet, ending in a newline; lines are at most `width` wide. `now`: Unix time."""
    joint = " " if view.sentence.startswith(("is ", "hangs: ")) else ": "
    lines = textwrap.wrap(printable(f"{view.name}{joint}{view.sentence}"), width, break_on_hyphens=False)
    if colour:
        lines = [click.style(line, bold=True) for line in lines]
    for label, text in _fields(view, now):
        lead = f"  {label}".ljust(_LABEL_WIDTH)
        for line in textwrap.wrap(printable(text), max(24, width - _LABEL_WIDTH), break_on_hyphens=False) or [""]:
            lines.append((lead + line).rstrip())
            lead = " " * _LABEL_WIDTH
    return "\n".join(lines) + "\n"


def _fields(view: BackendView, now: float) -> Iterator[tuple[str, str]]:
    supervision, launch = view.supervision, view.launch
    yield "kind", f"{view.kind}, {'found running' if view.discovered else 'named by the config'}"
    yield "run by", supervision.who or "unknown"
    yield "process", _process(view)
    if supervision.waits is not None:
        yield "restart", supervision.waits
    yield "address", view.url or "unknown"
    yield from _model(view)
    yield "context", _context(view)
    slots = "unknown, or as the server chooses" if launch.slots is None else str(launch.slots)
    yield "slots", slots
    types = (launch.cache_type_k, launch.cache_type_v)
    yield (
        "KV cache types",
        "not said (f16)" if types == (None, None) else " and ".join(one or "not said" for one in types),
    )
    yield "prompt cache", "unknown" if view.prompt_cache_mib is None else _prompt_cache(view.prompt_cache_mib)
    own, swapped = view.memory.backend_anonymous_bytes, view.memory.backend_swap_bytes
    memory = "unknown" if own is None else f"{format_bytes(own)} of its own"
    yield "memory", memory + (f", {format_bytes(swapped)} swapped out" if swapped else "")
    label = "may be changed"
    for change in launch.changes:
        value = "" if change.now is None else f" (now {change.now})"
        yield (
            label,
            f"{_NAMES.get(change.name, change.name)}{value}: {'yes' if change.possible else 'no'}, {change.how}",
        )
        label = ""
    if supervision.by is not None:
        yield "a restart takes", _restart_takes(view)
        yield from _restarts(view, now)
        yield "record", supervision.record or "none: no daemon after this one takes it over"
    if view.before_start is not None:
        yield "last start", view.before_start
    for number, text in enumerate(view.relief):
        yield "" if number else "relief", text
    yield "log", supervision.log or "unknown"
    yield "command", shlex.join(launch.command) if launch.command else "not known yet"


def _process(view: BackendView) -> str:
    if view.pid is None:
        return "none"
    return f"pid {view.pid}" + ("" if view.cgroup is None else f", cgroup {view.cgroup}")


def _model(view: BackendView) -> Iterator[tuple[str, str]]:
    size = "" if view.model_bytes is None else f", {format_bytes(view.model_bytes)}"
    yield "model", "unknown" if view.model_path is None else f"{view.model_path}{size}"
    if view.layout is not None:
        yield "layout", _layout(view.layout)
    elif view.model_unknown is not None:
        yield "layout", f"unknown: {view.model_unknown}"


def _layout(layout: ModelLayout) -> str:
    if not layout.experts:
        return f"{layout.layers} layers, dense: every token needs all of it"
    return (
        f"{layout.layers} layers, {layout.experts} experts of which a token uses {layout.experts_used}; "
        f"{format_bytes(layout.expert_bytes)} experts, {format_bytes(layout.other_bytes)} others"
    )


def _context(view: BackendView) -> str:
    context, launch = view.context, view.launch
    parts = ["now unknown" if context.now is None else f"now {context.now} tokens"]
    if context.wanted is not None:
        parts.append(f"wanted {context.wanted}{' (by hand)' if launch.context_by_hand else ''}")
    if context.preferred is not None:
        parts.append(f"preferred {context.preferred}")
    if context.minimum is not None:
        parts.append(f"at least {context.minimum}")
    if launch.trained_context is not None:
        parts.append(f"the model was trained for {launch.trained_context}")
    return ", ".join(parts)


def _prompt_cache(size_mib: int) -> str:
    return "without limit" if size_mib < 0 else f"{size_mib} MiB at most" if size_mib else "none"


def _restart_takes(view: BackendView) -> str:
    supervision = view.supervision
    if supervision.restart_seconds is None:
        return f"unknown: {supervision.restart_source}" if supervision.restart_source else "unknown"
    return f"about {format_duration(max(1.0, round(supervision.restart_seconds)))} ({supervision.restart_source})"


def _restarts(view: BackendView, now: float) -> Iterator[tuple[str, str]]:
    counts = view.supervision.restarts_by_cause
    if not view.supervision.restarts:
        yield "restarts", "none since moetuned started"
        return
    said = ", ".join(f"{count} {_CAUSES.get(cause, cause)}" for cause, count in counts.items())
    yield "restarts", f"{said} since moetuned started"
    for one in view.supervision.restarts:
        yield "", _one(one, now)


def _one(restart: Restart, now: float) -> str:
    at = time.localtime(restart.wall_seconds)
    today = time.strftime("%F", at) == time.strftime("%F", time.localtime(now))
    cause = _CAUSES.get(restart.cause.value, restart.cause.value)
    context = ""
    if restart.context_before != restart.context_after:
        context = f", context {restart.context_before} -> {restart.context_after}"
    took = (
        ""
        if restart.took_seconds is None
        else f", healthy after {format_duration(max(1.0, round(restart.took_seconds)))}"
    )
    failed = "" if restart.failed is None else f"; it was not done: {restart.failed}"
    return f"{time.strftime('%T' if today else '%F %T', at)} {cause}{context}{took}: {restart.why}{failed}"
