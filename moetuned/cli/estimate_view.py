"""The estimate as a screen, a pure function of an Estimate: a verdict, a bar, a table of the ledger, and how to start it.

Everything that came from outside (names, paths, help texts) is stripped of control characters. Lines are at most `width`
wide; without colour nothing but text is printed.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence

import click

from moetuned.cli.text_width import printable
from moetuned.decide.compute_buffer import MIB
from moetuned.schema.estimate import UNKNOWN_SWAP, Amount, Estimate, Exact, Forecast, Ledger, LedgerLine, Rate
from moetuned.schema.units import format_bytes, format_rate, format_ratio

_SMALLEST_WIDTH = 76
_LABEL_WIDTH = 25
_AMOUNT_WIDTH = 14
_FIELD_WIDTH = 12
_SIGNS = {"system": "█", "backend": "▓", "weights": "▒", "experts": "░"}
_EMPTY = "·"


def render(found: Estimate, width: int, colour: bool) -> str:
    """The whole screen, ending in a newline."""
    page = _Page(max(width, _SMALLEST_WIDTH), colour)
    _head(page, found)
    _verdict(page, found)
    page.raw("")
    _bar(page, found.ledger, found.ledger.limit, "ram")
    if found.ledger.vram_limit is not None:
        _bar(page, found.ledger, found.ledger.vram_limit, "vram")
    page.raw("")
    _table(page, found)
    page.raw("")
    _speed(page, found)
    page.raw("")
    _context(page, found)
    if found.exact is not None:
        _exact(page, found, found.exact)
    if found.fits:
        page.raw("")
        _launch(page, found)
    for note in found.notes:
        page.field("note", note)
    return page.done()


class _Page:
    """Lines of at most `width`."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = width
        self._colour = colour
        self._lines: list[str] = []

    def raw(self, line: str, fg: str | None = None, *, bold: bool = False) -> None:
        line = line.rstrip()
        self._lines.append(click.style(line, fg=fg, bold=bold or None) if self._colour and (fg or bold) else line)

    def text(self, text: str, fg: str | None = None, *, bold: bool = False) -> None:
        for line in _wrap(text, self.width):
            self.raw(line, fg, bold=bold)

    def field(self, label: str, text: str, fg: str | None = None) -> None:
        lead = f"  {label}".ljust(_FIELD_WIDTH)
        for line in _wrap(text, self.width - _FIELD_WIDTH) or [""]:
            self.raw(lead + line, fg)
            lead = " " * _FIELD_WIDTH

    def done(self) -> str:
        return "\n".join(self._lines) + "\n"


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, break_on_hyphens=False)


def _head(page: _Page, found: Estimate) -> None:
    name = found.model.rpartition("/")[2]
    files = f" in {len(found.parts)} files" if len(found.parts) > 1 else ""
    page.text(f"{name}: {format_bytes(found.size_bytes)}{files}, {found.architecture}", bold=True)
    if not found.experts:
        page.text("No mixture of experts: every token reads all of it.")
        return
    page.text(
        f"{found.layers} layers, {found.experts} experts of which {found.experts_used} are used; a token reads "
        f"{format_bytes(found.active_expert_bytes)} of experts and {format_bytes(found.forecast.every_token_bytes)} of the rest."
    )


def _verdict(page: _Page, found: Estimate) -> None:
    page.raw("")
    if found.ledger.shortage is not None:
        page.text(f"DOES NOT FIT: {found.ledger.shortage}.", "red", bold=True)
        return
    cast = found.forecast
    share = _percent(found.ledger.ratio_low, found.ledger.ratio_high)
    fit = f"{share} of the experts fit in memory. " if found.experts else ""
    colour = {"close to in-memory": "green", "in memory": "green", "slow": "red"}.get(cast.word, "yellow")
    advice = f": {cast.advice}" if cast.advice else ""
    page.text(f"{cast.word.upper()}: {fit}Forecast {_speed_range(cast)}, not a promise{advice}.", colour, bold=True)


def _percent(low: float, high: float) -> str:
    return format_ratio(low) if round(low, 2) == round(high, 2) else f"{low * 100:.0f} to {high * 100:.0f} %"


def _speed_range(cast: Forecast) -> str:
    return f"{_tokens(cast.tokens_per_second_low)} to {_tokens(cast.tokens_per_second_high)} tokens/s"


def _tokens(rate: float) -> str:
    if rate >= 10:
        return f"{rate:.0f}"
    return f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"


def _bar(page: _Page, ledger: Ledger, limit: Amount, place: str) -> None:
    """One cell for each share of the limit; lines take their most, so what is free is what surely is."""
    columns = page.width - 2
    groups = dict.fromkeys(_SIGNS, 0)
    for line in ledger.lines:
        if line.place == place:
            groups["experts" if line.name == "experts_gpu" else line.group] += line.amount.high_bytes
    if place == "ram":
        groups["experts"] += ledger.room.low_bytes
    drawn, seen = "", 0
    for group, size in groups.items():
        seen += size
        drawn += _SIGNS[group] * (min(columns, round(columns * seen / max(1, limit.high_bytes))) - len(drawn))
    page.raw(f"  {drawn}{_EMPTY * (columns - len(drawn))}")
    names = {"system": "system", "backend": "backend", "weights": "needed by every token", "experts": "experts"}
    legend = [f"{_SIGNS[group]} {names[group]}" for group, size in groups.items() if size]
    if len(drawn) < columns:
        legend.append(f"{_EMPTY} free")
    page.raw("  " + "  ".join(legend))
    page.text(f"  of {format_bytes(limit.high_bytes)}: {limit.source}")


def _table(page: _Page, found: Estimate) -> None:
    gpu = found.ledger.vram_limit is not None
    page.raw(_row(page, "", "as below", "by default", "where it comes from"), bold=True)
    by_default = {line.name: line.amount for line in found.defaults.lines}
    for line in found.ledger.lines:
        other = by_default.get(line.name, Amount(0, 0, ""))
        if line.amount.high_bytes == 0 and other.high_bytes == 0:
            continue
        label = line.label + (", GPU" if line.place == "vram" else "")
        source = line.amount.source
        if line.amount.high_bytes == 0 and line.name == "repacked":
            source = f"{source}; {other.source}"
        _table_line(page, label, line.amount, other, source)
    if found.experts:
        label = "left for experts" + (", RAM" if gpu else "")
        whole = format_bytes(found.expert_bytes)
        copied = "; others are in the copies" if "copies" in found.ledger.room.source else ""
        _table_line(page, label, found.ledger.room, found.defaults.room, f"of {whole} of experts{copied}")
    swap = found.machine.swap
    if swap.source != UNKNOWN_SWAP:
        swap_text = f"{format_bytes(swap.high_bytes)}, {swap.source}" if swap.high_bytes else f"none ({swap.source})"
        page.field("swap", f"{swap_text}; not counted: a backend in swap is slower than one with less cache")
    if found.defaults.shortage is not None and found.ledger.shortage is None:
        page.field("default", f"with llama-server's own defaults it would not run: {found.defaults.shortage}", "yellow")


def _table_line(page: _Page, label: str, amount: Amount, other: Amount, source: str) -> None:
    room = page.width - 2 - _LABEL_WIDTH - 2 * _AMOUNT_WIDTH - 2
    first, *rest = _wrap(source, room) or [""]
    page.raw(_row(page, label, _range(amount), _range(other), first))
    for line in rest:
        page.raw(_row(page, "", "", "", line))


def _row(page: _Page, label: str, amount: str, other: str, source: str) -> str:  # noqa: ARG001
    return f"  {printable(label):<{_LABEL_WIDTH}}{amount:>{_AMOUNT_WIDTH}}{other:>{_AMOUNT_WIDTH}}  {source}"


def _range(amount: Amount) -> str:
    if amount.low_bytes == amount.high_bytes:
        return format_bytes(amount.low_bytes)
    low, high = format_bytes(amount.low_bytes), format_bytes(amount.high_bytes)
    if low == high:
        return low
    number, _, unit = high.partition(" ")
    size = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30, "TiB": 1 << 40}[unit]
    least = amount.low_bytes / size
    return (
        f"{least:.0f}-{number} {unit}" if least == 0 or unit in ("B", "KiB", "MiB") else f"{least:.1f}-{number} {unit}"
    )


def _speed(page: _Page, found: Estimate) -> None:
    cast = found.forecast
    page.field("speed", f"{_speed_range(cast)} (a forecast); the slow end waits mostly for {cast.limited_by}")
    if found.experts:
        page.field(
            "missing",
            f"{_percent(cast.miss.low, cast.miss.high)} of the expert bytes a token needs ({cast.miss.source})",
        )
    read = cast.disk_bytes_per_token
    page.field("from disk", f"{_range(read)} a token ({read.source})" if read.high_bytes else "nothing, once warm")
    if read.high_bytes or found.disk.rate is not None:
        page.field(
            "disk",
            f"{_rate(cast.disk)} at {found.disk.window_bytes >> 10} KiB a fault ({cast.disk.source}; {found.disk.kind_source})",
        )
    page.field("CPU", f"{_rate(cast.compute)} of weights ({cast.compute.source})")
    if cast.gpu is not None:
        page.field("GPU", f"{_rate(cast.gpu)} of weights ({cast.gpu.source})")


def _rate(rate: Rate) -> str:
    low, high = format_rate(rate.low_bytes_per_second), format_rate(rate.high_bytes_per_second)
    return low if low == high else f"{low} to {high}"


def _context(page: _Page, found: Estimate) -> None:
    longest = found.longest_context
    each = (
        f"{format_bytes(found.kv_bytes_per_token)} a token of context"
        if found.kv_bytes_per_token
        else "no cost a token"
    )
    if longest.context_length > found.plan.context_length:
        page.field(
            "context",
            f"up to {longest.context_length} tokens leave the share of the experts as it is ({longest.reason}); {each}",
        )
    else:
        page.field("context", f"{found.plan.context_length} tokens; {longest.reason}; {each}")
    for step in found.steps:
        kind = "" if step.cache_type_k == found.plan.cache_type_k else f" with a {step.cache_type_k} cache"
        then = f", then {format_ratio(step.ratio_low)} of the experts fit" if found.ledger.ratio_low < 1 else ""
        page.field("", f"{step.context_length} tokens{kind} would free {format_bytes(step.frees_bytes)}{then}")


def _exact(page: _Page, found: Estimate, exact: Exact) -> None:
    if exact.unknown is not None or exact.context_bytes is None or exact.compute_bytes is None:
        page.field("exact", f"unknown: {exact.unknown}", "yellow")
        return
    lines = found.ledger.lines
    cache = _named(lines, "kv_cache", "kv_cache_gpu", "recurrent_state", "recurrent_state_gpu")
    compute = _named(lines, "compute_gpu") if found.ledger.vram_limit is not None else _named(lines, "compute")
    page.field("exact", f"KV cache and state {format_bytes(exact.context_bytes)} (here {_range(cache)})")
    page.field("", f"compute buffers {format_bytes(exact.compute_bytes)} (here {_range(compute)})")
    page.field("", f"says {exact.source}")


def _named(lines: Sequence[LedgerLine], *names: str) -> Amount:
    chosen = [line.amount for line in lines if line.name in names]
    return Amount(sum(each.low_bytes for each in chosen), sum(each.high_bytes for each in chosen), "")


def _launch(page: _Page, found: Estimate) -> None:
    page.raw("  start it with", bold=True)
    words = [shlex.quote(printable(word)) for word in found.launch.command]
    lines, line = [], "   "
    for group in _grouped(words):
        if len(line) + 1 + len(group) > page.width - 2 and line.strip():
            lines.append(line + " \\")
            line = "     "
        line += " " + group
    for each in (*lines, line):
        page.raw(each)
    page.field("", found.launch.source)
    for note in found.launch.notes:
        page.field("note", note)


def _grouped(words: Sequence[str]) -> list[str]:
    """A flag and its value stay together."""
    groups: list[str] = []
    for word in words:
        joins = bool(groups) and groups[-1].startswith("-") and " " not in groups[-1] and not word.startswith("-")
        if joins or (groups and word == "-1"):
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    return groups
