"""The line of `moetunectl check`: words, codes and performance data as the Monitoring Plugins' guidelines ask for them.

Source: monitoring-plugins.org/doc/guidelines.html. A label may hold all but "=" and "'"; a value is a number or U (unknown); units are s, %, B, c or none;
"N:" as a threshold means: alert below N.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from moetuned.schema.headline import Headline, Severity
from moetuned.schema.snapshot import BackendView

CODES = {Severity.OK: 0, Severity.WARNING: 1, Severity.CRITICAL: 2, Severity.UNKNOWN: 3}
_PLAIN = re.compile(r"[A-Za-z0-9_.:/-]+")
_MOST_CHARACTERS = 4000
"""What is longer, some schedulers cut; then the performance data would be lost."""


class Measure(msgspec.Struct, frozen=True):
    """One number. `unit`: "B", "%", "s", "c" or ""; `warn` as a threshold; `value` None: unknown now."""

    label: str
    value: float | None
    unit: str = ""
    warn: str = ""
    least: float | None = None
    most: float | None = None


class CheckAnswer(msgspec.Struct, frozen=True):
    """What `moetunectl check --json` prints. `code`: what it exits with; `line`: what it prints without --json."""

    code: int
    status: Severity
    headlines: tuple[Headline, ...]
    line: str


def measures(views: Sequence[BackendView]) -> tuple[Measure, ...]:
    """The same ones of each backend at all times, unknown ones too: who draws them wants no gaps in the list."""
    return tuple(measure for view in views for measure in _of(view))


def _of(view: BackendView) -> Iterator[Measure]:
    memory, residency, layout, signals = view.memory, view.residency, view.layout, view.signals
    yield Measure(f"{view.name}_tokens_per_second", signals.get("tokens_per_second"), least=0)
    yield Measure(f"{view.name}_read_bytes_per_second", signals.get("process_read_bytes_per_second"), "B", least=0)
    near = next(
        (
            one.limit
            for one in view.verdict.reasons
            if one.axis == "memory" and one.limit and one.signal == "headroom_bytes"
        ),
        None,
    )
    warn = "" if near is None else f"{near:.0f}:"
    yield Measure(f"{view.name}_headroom", memory.headroom_bytes, "B", warn, most=memory.limit_bytes)
    whole = None if layout is None else layout.expert_bytes
    yield Measure(f"{view.name}_experts_in_memory", residency.expert_bytes, "B", least=0, most=whole)
    whole = view.model_bytes if layout is None else layout.other_bytes
    other = residency.resident_bytes if layout is None else residency.other_bytes
    yield Measure(f"{view.name}_{'model' if layout is None else 'rest'}_in_memory", other, "B", least=0, most=whole)
    yield Measure(f"{view.name}_context", view.context.now, least=0)
    yield Measure(f"{view.name}_restarts", view.restarts, "c", least=0)


def performance(found: Sequence[Measure]) -> str:
    """As the guidelines write it: 'label'=value[UOM];[warn];[crit];[min];[max]."""
    return " ".join(_written(measure) for measure in found)


def _written(measure: Measure) -> str:
    label = "".join("_" if char in "='|" or not char.isprintable() else char for char in measure.label)
    label = label if _PLAIN.fullmatch(label) else f"'{label}'"
    # Pages are counted whole, so what is resident may pass the size.
    size = measure.value if measure.value is None or measure.most is None else min(measure.value, measure.most)
    value = "U" if size is None else f"{_number(size)}{measure.unit}"
    fields = (value, measure.warn, "", _bound(measure.least), _bound(measure.most))
    return f"{label}={';'.join(fields)}".rstrip(";")


def _bound(value: float | None) -> str:
    return "" if value is None else _number(value)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def check_line(severity: Severity, text: str, found: Sequence[Measure] = ()) -> str:
    """One line: "MOETUNED OK - text|performance data". A bar in the text would end it."""
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).replace("|", "/").split())
    data = performance(found)
    return f"MOETUNED {severity.upper()} - {clean[:_MOST_CHARACTERS]}{f'|{data}' if data else ''}"


def answer(severity: Severity, headlines: Sequence[Headline], views: Sequence[BackendView]) -> CheckAnswer:
    """Of the headlines, worst first: all that are not well, else all of them."""
    told = [one for one in headlines if one.severity is not Severity.OK] or list(headlines)
    text = (
        " ".join(_sentence(one.line) for one in told)
        if len(told) > 1
        else told[0].line
        if told
        else "nothing is watched"
    )
    return CheckAnswer(CODES[severity], severity, tuple(headlines), check_line(severity, text, measures(views)))


def _sentence(line: str) -> str:
    """What ends with a command gets a mark, so that the next one does not look like a part of it."""
    return line if line.endswith((".", ")")) else f"{line};"
