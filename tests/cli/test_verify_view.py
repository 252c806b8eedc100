from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.verify_report import PartReport, Report
from moetuned.cli.verify_view import ProgressLine, printable, report_text
from moetuned.host.model_check import Problem

A = "a" * 64


def report(*parts: PartReport, ok: bool = True, compared: bool = True, notes: tuple[str, ...] = ()) -> Report:
    return Report(
        ok, compared, "/m/m-00001-of-00002.gguf", 3 << 30, 7, parts, (), notes, read_bytes=3_000_000_000, seconds=2.0
    )


def part(content: str, *problems: Problem, source: str | None = "/m/SHA256SUMS", sha256: str | None = A) -> PartReport:
    return PartReport("/m/m.gguf", 10, 10, 3, content, sha256, A, source, problems)


def test_all_is_well():
    assert report_text(report(part("equal"), part("equal"), notes=("resumed",)), show_sums=False).splitlines() == [
        "m-00001-of-00002.gguf: 2 parts, 3.0 GiB, 7 tensors",
        "  headers   as they should be, every tensor lies inside its file",
        "  content   2 of 2 parts equal, SHA-256 from /m/SHA256SUMS (2.8 GiB read in 2.0 s, 1.5 GB/s)",
        "  note      resumed",
        "Nothing is wrong.",
    ]


def test_content_that_was_not_compared_is_said_so():
    text = report_text(report(part("not_compared", source=None), compared=False), show_sums=True)
    assert "was not compared: nothing beside the model says" in text
    assert text.endswith(f"{A}  m.gguf\nNothing wrong was found.\n")


def test_problems_are_listed_and_counted():
    missing = part("not_read", Problem("missing", "part x is missing"), sha256=None)
    text = report_text(report(missing, ok=False), show_sums=False)
    assert "headers" not in text
    assert "was not read" in text
    assert "  wrong     part x is missing\nOne thing is wrong.\n" in text
    different = part("different", Problem("content", "is damaged"))
    text = report_text(report(different, different, ok=False), show_sums=False)
    assert "  headers   as they should be" in text
    assert "0 of 2 parts equal" in text
    assert text.endswith("2 things are wrong.\n")


def test_several_sources_and_short_runs():
    quick = Report(
        True, True, "/m", 1, 1, (part("equal"), part("equal", source="/a")), (), (), read_bytes=5, seconds=0.01
    )
    assert "  content   2 of 2 parts equal, SHA-256 from /a and 1 more\n" in report_text(quick, show_sums=False)


def test_nothing_from_outside_steers_the_terminal():
    assert printable("a\x1b[31m\n\udc80é") == "a\\x1b[31m\\n\\udc80é"
    text = report_text(report(part("not_read", Problem("mixed", "of a \x1b]0;x\x07 model"))), show_sums=False)
    assert "\x1b" not in text


def test_progress_has_share_rate_and_time_left():
    times = iter([0.0, 1.0, 2.0, 100.0, 101.0])
    line = ProgressLine(io.StringIO(), 1000 << 20, lambda: next(times))
    first = line.line(0, "m.gguf")
    assert "  0 %" in first
    assert "unknown" not in first
    assert "unknown left" not in line.line(100 << 20, "m.gguf")
    text = line.line(200 << 20, "m.gguf")
    assert " 20 %  200 MiB of 1000 MiB  105 MB/s  8.0 s left  m.gguf" in text
    assert text.count("█") == 4
    # After a pause the rate is that of now.
    line.line(300 << 20, "m.gguf")
    assert "MB/s" in line.line(1000 << 20, "m.gguf")


def test_the_line_is_drawn_over_and_taken_away():
    stream = io.StringIO()
    line = ProgressLine(stream, 100, lambda: 0.0)
    line.draw(50, "a-long-name.gguf", 200)
    first = len(stream.getvalue())
    line.draw(50, "b", 30)
    second = stream.getvalue()[first:]
    assert second.startswith("\r")
    assert len(second) <= 30 < first, "a terminal that has become narrower gets no second line"
    line.draw(50, "", 200)
    third = stream.getvalue()[first + len(second) :]
    line.draw(100, "", 200)
    assert len(stream.getvalue()) - first - len(second) - len(third) >= len(third), "what is left is written over"
    line.clear()
    assert stream.getvalue().endswith("\r")
    line.clear()


@given(st.integers(1, 200), st.floats(0, 1), st.text(max_size=60))
def test_what_fits_is_whole(columns: int, share: float, name: str):
    times = iter([0.0, 1.0])
    line = ProgressLine(io.StringIO(), 604 << 20, lambda: next(times))
    line.line(0, name)
    text = line.line(int(share * (604 << 20)), name, columns)
    assert len(text) <= columns or columns < 14
    assert re.fullmatch(r"[█░]{8,24} +\d+ %(  \S+ \S+ of 604 MiB(  \S+ \S+)?)?(  \S+( \S+)* left)?(  .*)?", text)
    assert "of 604 MiB" in text or columns < 60


@pytest.mark.parametrize(
    ("columns", "shown"), [(59, "0.7 s left"), (40, "0.7 s left"), (26, "0.7 s left"), (14, " 60 %")]
)
def test_in_a_narrow_terminal_no_figure_is_cut(columns: int, shown: str):
    times = iter([0.0, 1.0])
    line = ProgressLine(io.StringIO(), 604 << 20, lambda: next(times))
    line.line(0, "model.gguf")
    text = line.line(364 << 20, "model.gguf", columns)
    assert text.endswith(shown)
    assert len(text) <= columns


def test_an_empty_file_is_complete():
    assert "100 %" in ProgressLine(io.StringIO(), 0).line(0, "m")
