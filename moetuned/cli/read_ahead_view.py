"""How `moetunectl tune readahead` shows what it measured: a plot in text, a table's worth of figures in each of its lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import msgspec

from moetuned.decide.read_ahead import CLEARLY, LOWEST_KIB, TIE
from moetuned.schema.snapshot import TunableView
from moetuned.schema.units import format_bytes, format_rate

_TIES = (
    f"of those within {TIE * 100:.0f} % of the fastest the smallest is best, as it reads least (below {LOWEST_KIB} KiB only if "
    f"{CLEARLY * 100:.0f} % faster)."
)
_EXPLAINED = (
    "Expected speed: slices a second, less what reading in vain pushes out of memory, as a share of the fastest; "
    + _TIES
)
_EXPLAINED_IN_MEMORY = "Expected speed: slices a second as a share of the fastest, as all fits into memory; " + _TIES
_NARROWEST_BAR = 10
_WIDEST_BAR = 50


class ValueLine(msgspec.Struct, frozen=True):
    """One value of the curve. `speed_ratio`: expected speed as a share of the fastest's, `read_bytes_per_useful_byte` None: not known."""

    kib: int
    slices: int
    useful_bytes_per_second: float
    read_bytes_per_useful_byte: float | None
    speed_ratio: float


class ReadAheadReport(msgspec.Struct, frozen=True):
    """What was measured: the JSON of `moetunectl tune readahead --json`. Fields are added, never renamed.

    `now_kib`: the setting as it was and is, `best_kib` the proposal, `computed_kib` what a profile would set without measuring.
    `cached_bytes`: how much of the model is taken to be in memory. `noisy`: the rounds differed by more (`noise_ratio`) than the
    values do, so the proposal is the computed value (the present one where none can be computed) and not a measured one.
    """

    model: str
    model_bytes: int
    slice_bytes: int
    device: str
    setting: str
    now_kib: int
    best_kib: int
    computed_kib: int | None
    computed_because: str
    cached_bytes: int
    cached_ratio: float
    threads: int
    seconds: float
    read_bytes: int | None
    values: tuple[ValueLine, ...]
    notes: tuple[str, ...] = ()
    applied: TunableView | None = None
    noisy: bool = False
    noise_ratio: float = 0.0


def render(report: ReadAheadReport, width: int = 80) -> str:
    """The report for people, no line longer than `width` (at least 60)."""
    width = max(60, width)
    lines = [
        *_wrapped(
            f"Read-ahead of {report.device} for expert slices of {format_bytes(report.slice_bytes)}, {report.threads} "
            f"reader{'' if report.threads == 1 else 's'}, with {format_bytes(report.cached_bytes)} of the model's "
            f"{format_bytes(report.model_bytes)} in memory:",
            width,
        ),
        "",
        *plot(report.values, report.now_kib, report.best_kib, width, best="computed" if report.noisy else "best"),
        "",
        *_wrapped(_EXPLAINED if report.cached_ratio < 1.0 else _EXPLAINED_IN_MEMORY, width),
        "",
        *_wrapped(_verdict(report), width),
        *_wrapped(_of_the_profiles(report), width),
    ]
    for note in report.notes:
        lines += _wrapped(f"note: {note}", width)
    return "\n".join(lines) + "\n"


def plot(values: Sequence[ValueLine], now_kib: int, best_kib: int, width: int, *, best: str = "best") -> list[str]:
    """A bar for each value, as long as its expected speed; the present value and the `best` are marked."""
    marks = {each.kib: _mark(each.kib, now_kib, best_kib, best) for each in values}
    tail = max((len(mark) for mark in marks.values()), default=0)
    head = f"{'KiB':>6}  {'slices at':>9}  {'read':>6}  "
    room = max(_NARROWEST_BAR, min(_WIDEST_BAR, width - len(head) - len(" 100 %") - tail - 2))
    lines = [f"{head}{'expected speed'}".rstrip()]
    for each in values:
        grown = _grown(each.read_bytes_per_useful_byte)
        bar = "#" * max(1, round(each.speed_ratio * room))
        share = f"{each.speed_ratio * 100:.0f} %"
        line = f"{each.kib:>6}  {format_rate(each.useful_bytes_per_second):>9}  {grown:>6}  {bar} {share}"
        lines.append(f"{line}  {marks[each.kib]}".rstrip())
    return lines


def _grown(amplification: float | None) -> str:
    if amplification is None:
        return "?"
    return f"{amplification:.0f}x" if amplification >= 99.5 else f"{amplification:.1f}x"


def _mark(kib: int, now_kib: int, best_kib: int, best: str) -> str:
    words = [word for word, at in (("now", now_kib), (best, best_kib)) if at == kib]
    return f"<- {' and '.join(words)}" if words else ""


def _verdict(report: ReadAheadReport) -> str:
    if report.noisy:
        proposed = (
            f"{report.best_kib} KiB, computed from the slices, is proposed instead"
            if report.best_kib == report.computed_kib
            else f"the present {report.now_kib} KiB is kept"
        )
        return (
            f"Too noisy to tell: the rounds differ by up to {report.noise_ratio * 100:.0f} %, more than the values do, so {proposed}. "
            "Let the machine come to rest and measure again, with a larger --seconds."
        )
    if report.best_kib == report.now_kib:
        return f"The present {report.now_kib} KiB is the best of them here; nothing is to be changed."
    by_kib = {each.kib: each for each in report.values}
    best, now = by_kib[report.best_kib], by_kib.get(report.now_kib)
    told = f"{best.kib} KiB is the best of them here"
    if now is not None:
        told += f": {_times(best.speed_ratio / max(now.speed_ratio, 1e-9))} as fast as the present {now.kib} KiB"
        if now.read_bytes_per_useful_byte and best.read_bytes_per_useful_byte:
            share = best.read_bytes_per_useful_byte / now.read_bytes_per_useful_byte
            told += f", reading {share * 100:.0f} % as much"
    return told + "."


def _of_the_profiles(report: ReadAheadReport) -> str:
    """What is set without measuring; nothing where it says the same."""
    if report.noisy or report.computed_kib is None or report.computed_kib == report.best_kib:
        return ""
    return f"The profiles set {report.computed_kib} KiB, computed from the slices alone; the config wins over them."


def _times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 9.5 else f"{ratio:.1f} times"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
