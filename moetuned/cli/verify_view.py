"""What `moetunectl verify` prints: the report for people, and the line of progress on a terminal."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

import msgspec

from moetuned.cli.verify_report import Report
from moetuned.schema.units import format_bytes, format_duration, format_rate

_RATE_SECONDS = 10.0
_BAR_WIDTH = 24
_SHORTEST_BAR = 8
_SHORTEST_NAME = 8
_WIDEST = 1000
_SHORT_SECONDS = 1.0
_LABEL = "  {:<9} "


def printable(text: str) -> str:
    """`text` with everything that is not printable escaped: names and header values come from outside."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def report_json(report: Report) -> str:
    """The report for programs. ASCII only: a file's name may hold bytes that are no UTF-8."""
    return json.dumps(msgspec.to_builtins(report), indent=2)


def report_text(report: Report, show_sums: bool) -> str:
    """The report for people, ending in a newline. `show_sums`: also each SHA-256, as sha256sum prints it."""
    name = os.path.basename(report.model)
    count = len(report.parts)
    parts = f"{count} parts, " if count > 1 else ""
    tensors = "1 tensor" if report.tensors == 1 else f"{report.tensors} tensors"
    what = f"{name}: {parts}{format_bytes(report.size_bytes)}, {tensors}"
    problems = [problem for part in report.parts for problem in part.problems] + list(report.problems)
    structure = [one for one in problems if one.kind not in ("content", "size", "unlisted", "holes")]
    lines = [what]
    if not structure:
        inside = "every tensor lies inside its file" if report.extents_checked else "as far as its types are known"
        lines.append(_LABEL.format("headers") + f"as they should be, {inside}")
    lines.append(_LABEL.format("content") + _content(report))
    lines += [_LABEL.format("wrong") + problem.sentence for problem in problems]
    lines += [_LABEL.format("note") + note for note in report.notes]
    if show_sums:
        lines += [f"{part.sha256}  {os.path.basename(part.path)}" for part in report.parts if part.sha256]
    if problems:
        lines.append("One thing is wrong." if len(problems) == 1 else f"{len(problems)} things are wrong.")
    else:
        lines.append("Nothing is wrong." if report.content_compared else "Nothing wrong was found.")
    return "".join(f"{printable(line)}\n" for line in lines)


def _content(report: Report) -> str:
    compared = [part for part in report.parts if part.content in ("equal", "different")]
    if not compared:
        if report.quick:
            return "was not read (--quick)"
        if any(part.content == "not_compared" for part in report.parts):
            return "was not compared: nothing beside the model says what its SHA-256 should be (--sha256 FILE)"
        return "was not read: it is already known that something is wrong"
    equal = sum(part.content == "equal" for part in compared)
    sources = sorted({part.expected_from for part in compared if part.expected_from is not None})
    named = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
    of = f"{equal} of {len(report.parts)} parts equal" if len(report.parts) > 1 else ("equal" if equal else "different")
    return f"{of}, SHA-256 from {named}{_speed(report)}"


def _speed(report: Report) -> str:
    if report.seconds < _SHORT_SECONDS:
        return ""
    rate = format_rate(report.read_bytes / report.seconds)
    return f" ({format_bytes(report.read_bytes)} read in {format_duration(report.seconds)}, {rate})"


class ProgressLine:
    """One line that is drawn over and over: bar, share, rate over the last ten seconds, time left, file."""

    def __init__(self, stream: TextIO, total_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._total = total_bytes
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self._drawn = 0

    def draw(self, done_bytes: int, name: str, columns: int) -> None:
        """Draw it, at most `columns` wide."""
        most = max(1, columns - 1)
        line = self.line(done_bytes, name, most)[:most]
        # What is left of a longer line is written over; in a terminal that has become narrower that must not begin a new one.
        self._stream.write("\r" + line.ljust(min(self._drawn, most)))
        self._stream.flush()
        self._drawn = len(line)

    def line(self, done_bytes: int, name: str, columns: int = _WIDEST) -> str:
        """The text at this moment, as much of it as fits into `columns`: the name goes first, then length of the bar, then figures."""
        now = self._clock()
        self._seen.append((now, done_bytes))
        while len(self._seen) > 2 and now - self._seen[0][0] > _RATE_SECONDS:
            self._seen.popleft()
        (first, before), share = self._seen[0], done_bytes / self._total if self._total else 1.0
        rate = (done_bytes - before) / (now - first) if now > first else None
        left = (self._total - done_bytes) / rate if rate else None
        sizes = f"{format_bytes(done_bytes)} of {format_bytes(self._total)}"
        speed = () if rate is None else (format_rate(rate),)
        time_left = () if left is None else (f"{format_duration(left)} left",)
        figures = ((sizes, *speed, *time_left), (sizes, *time_left), time_left, ())
        texts = ["  ".join((f" {int(share * 100):3d} %", *each)) for each in figures]
        text = next((each for each in texts if len(each) + _SHORTEST_BAR <= columns), texts[-1])
        width = max(_SHORTEST_BAR, min(_BAR_WIDTH, columns - len(text)))
        shown = printable(name)
        room = columns - width - len(text) - 2
        if shown and room >= min(len(shown), _SHORTEST_NAME):
            text += f"  {shown[:room]}"
        filled = int(share * width)
        return "█" * filled + "░" * (width - filled) + text

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._stream.write("\r" + " " * self._drawn + "\r")
            self._stream.flush()
            self._drawn = 0
