"""The lines of one backend in `moetunectl top`: its verdict, and a row with number and sparkline for each thing that is watched."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moetuned.cli.columns import clean, cut, pad, wrap
from moetuned.cli.sparkline import Values, bins, mean, sparkline
from moetuned.cli.styled_line import Line
from moetuned.schema.history import HISTORY_STEP_SECONDS, BackendHistory
from moetuned.schema.snapshot import BackendView
from moetuned.schema.units import format_bytes, format_rate, format_ratio
from moetuned.schema.verdict import MemoryState, Paging, Phase

_LABEL_COLUMNS = 11
_VALUE_COLUMNS = 9
_NOTE_COLUMNS = 15
_WIDE = 72
"""From so many columns on there is room for a note behind each sparkline."""
_SMALLEST_SPARK = 4
_VERDICT_LINES = 3
_NO_REQUEST = frozenset((Phase.IDLE, Phase.ABSENT, Phase.LOADING, Phase.PREFILL))
_PAGING_LETTERS = {
    Paging.COLD: "c", Paging.WARMING: "w", Paging.STEADY: "s", Paging.STREAMING: "~", Paging.THRASHING: "T", Paging.UNKNOWN: "?",
}  # fmt: skip

CONTINUED_RANK = 4
"""Of the second and third line of a verdict."""
BASIC_RANK = 7
"""Rows up to this rank come before anything below the backends."""
READS, REFAULTS = "process_read_bytes_per_second", "refault_bytes_per_second"


class Page(msgspec.Struct, frozen=True):
    """Where it is drawn: columns, whether others than ASCII characters can be shown, seconds that a column stands for."""

    width: int
    unicode: bool = True
    seconds_a_column: int = 2

    @property
    def values_a_column(self) -> int:
        """Values of the history that a column stands for."""
        return max(1, self.seconds_a_column // HISTORY_STEP_SECONDS)

    @property
    def more(self) -> str:
        """What says that something was cut off."""
        return "…" if self.unicode else "..."

    def text(self, text: str) -> str:
        """Text from outside, in one line of at most its width."""
        return cut(clean(text, unicode=self.unicode), self.width, self.more)

    def wrapped(self, text: str, most_lines: int, indent: int = 0) -> list[str]:
        """The same in several lines, those after the first indented."""
        return wrap(clean(text, unicode=self.unicode), self.width, most_lines, self.more, indent)


class Row(msgspec.Struct, frozen=True):
    """A line and how much it is worth when there is no room for all: 0 comes first. `goes_on`: the next belongs to the same sentence."""

    rank: int
    line: Line
    goes_on: bool = False


class _Watched(msgspec.Struct, frozen=True):
    """A row: what it is called, its number now, its values, the value that fills a column, what is said behind it."""

    rank: int
    label: str
    value: str
    values: Values
    top: float
    note: str
    style: str = ""
    gather: Callable[..., float] = mean


def backend_rows(
    backend: BackendView, history: BackendHistory | None, last: int, page: Page, mark: str, style: str = ""
) -> list[Row]:
    """All its lines in the order in which they are shown. `last`: number of the last value of `history`; `mark` stands before its name,
    which is drawn in `style`.
    """
    joint = " " if backend.sentence.startswith(("is ", "hangs: ")) else ": "
    narrower = msgspec.structs.replace(page, width=max(1, page.width - len(mark)))
    said = narrower.wrapped(f"{backend.name}{joint}{backend.sentence}", _VERDICT_LINES, 2)
    leads = (mark, *(" " * len(mark) for _ in said[1:]))
    rows = [
        Row(CONTINUED_RANK if number else 0, _fitting(((lead + line, style),), page), number < len(said) - 1)
        for number, (lead, line) in enumerate(zip(leads, said, strict=True))
    ]
    rows += [_row(one, last, page) for one in _watched(backend, history)]
    if history is not None:
        rows.append(Row(8, _paging_row(backend, history, last, page)))
    return rows


def _watched(backend: BackendView, history: BackendHistory | None) -> list[_Watched]:
    kept = {} if history is None else history.signals
    signals = backend.signals

    def values(name: str) -> Values:
        return kept.get(name, ())

    def most(name: str, floor: float) -> float:
        return max((value for value in (*values(name), signals.get(name)) if value is not None), default=0.0) or floor

    reads = max(most(READS, 1e6), most(REFAULTS, 0.0), 1e6)
    faults, tokens = max(most("major_faults_per_second", 0.0), 10.0), max(most("tokens_per_second", 0.0), 0.5)
    share = _resident_signal(backend, history)
    limit, headroom = backend.memory.limit_bytes, signals.get("headroom_bytes", backend.memory.headroom_bytes)
    rows = [
        _Watched(
            1, "reads", _number(signals.get(READS), format_rate), values(READS), reads, f"scale {format_rate(reads)}"
        ),
        _Watched(5, "refaults", _number(signals.get(REFAULTS), format_rate), values(REFAULTS), reads, "same scale"),
        _Watched(
            7, "faults", _number(signals.get("major_faults_per_second"), _per_second), values("major_faults_per_second"), faults,
            f"scale {faults:.0f}/s",
        ),
        _Watched(3, "tokens", _tokens(backend), values("tokens_per_second"), tokens, f"scale {tokens:.1f}/s"),
        _Watched(6, share[0], _number(signals.get(share[1]), format_ratio), values(share[1]), 1.0, share[2]),
        _Watched(
            2, "headroom", _number(headroom, format_bytes), values("headroom_bytes"),
            float(limit or most("headroom_bytes", 1.0)), "" if limit is None else f"of {format_bytes(limit)}", gather=min,
        ),
    ]  # fmt: skip
    if backend.verdict.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        style = "red" if backend.verdict.memory == MemoryState.CRITICAL else "yellow"
        rows[-1] = msgspec.structs.replace(rows[-1], style=style)
    return rows


def _resident_signal(backend: BackendView, history: BackendHistory | None) -> tuple[str, str, str]:
    """Label, signal and note: the experts, or the whole model where no experts are known."""
    layout = backend.layout
    if layout is not None and layout.expert_bytes:
        return "experts", "expert_resident_ratio", f"of {format_bytes(layout.expert_bytes)}"
    known = () if history is None else history.signals.get("expert_resident_ratio", ())
    if any(value is not None for value in known):
        return "experts", "expert_resident_ratio", ""
    return (
        "resident",
        "resident_ratio",
        "" if backend.model_bytes is None else f"of {format_bytes(backend.model_bytes)}",
    )


def _number(value: float | None, form: Callable[[float], str]) -> str:
    return "unknown" if value is None else form(value)


def _per_second(value: float) -> str:
    return f"{value:.0f}/s"


def _tokens(backend: BackendView) -> str:
    speed = backend.signals.get("tokens_per_second")
    if speed is None:
        return "none" if backend.verdict.phase in _NO_REQUEST else "unknown"
    return f"{speed:.1f}/s"


def _row(one: _Watched, last: int, page: Page) -> Row:
    head = f"  {pad(one.label, _LABEL_COLUMNS - 2)}{one.value:>{_VALUE_COLUMNS}} "
    spark = _spark_columns(page)
    line = ""
    if spark >= _SMALLEST_SPARK:
        line = sparkline(bins(one.values, last, page.values_a_column, spark, one.gather), one.top, unicode=page.unicode)
    note = f" {one.note}" if page.width >= _WIDE and one.note else ""
    return Row(one.rank, _fitting(((head, one.style), (line, one.style), (note, "dim")), page))


def _spark_columns(page: Page) -> int:
    note = _NOTE_COLUMNS + 1 if page.width >= _WIDE else 0
    return page.width - _LABEL_COLUMNS - _VALUE_COLUMNS - 1 - note


def _fitting(line: Line, page: Page) -> Line:
    """Only what fits."""
    spans, left = [], page.width
    for text, style in line:
        shown = cut(text, left, "")
        left -= len(shown)
        if shown:
            spans.append((shown, style))
    return tuple(spans)


def _paging_row(backend: BackendView, history: BackendHistory, last: int, page: Page) -> Line:
    """How it got its bytes, a letter a column: the worst of its seconds."""
    order = list(_PAGING_LETTERS)
    codes = [
        None if state is None or state == Paging.UNKNOWN else float(order.index(state)) for state in history.paging
    ]
    spark = max(0, _spark_columns(page))
    letters = "".join(
        " " if code is None else _PAGING_LETTERS[order[int(code)]]
        for code in bins(codes, last, page.values_a_column, spark, max)
    )
    head = f"  {pad('paging', _LABEL_COLUMNS - 2)}{backend.verdict.paging.value:>{_VALUE_COLUMNS}} "
    note = f" {backend.verdict.phase.value}" if page.width >= _WIDE else ""
    return _fitting(((head, ""), (letters if spark >= _SMALLEST_SPARK else "", ""), (note, "dim")), page)
