"""Residency as text: shares that do not lie, heat maps that fit."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.model_residency import Look, PartResidency
from moetuned.cli.residency_view import (
    MOST_ROWS,
    ResidencyReport,
    ServedReport,
    Style,
    bar,
    change_line,
    experts_report,
    heat_map,
    level,
    render,
    share,
    wrapped,
)
from moetuned.schema.heat import ExpertPages

MIB = 1 << 20


def look(expert: int, other: int) -> Look:
    return Look((PartResidency("/m.gguf", 1000, expert + other, 900, expert),))


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 10**6, "under 1 %"),
        (10**6 - 1, 10**6, "over 99 %"),
        (61, 100, "61 %"),
        (0, 0, "none"),
    ],
)
def test_nothing_and_all_are_said_only_of_nothing_and_all(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


def test_a_change_in_one_line() -> None:
    assert change_line(look(108, 100), look(549, 100)) == "experts 12 % -> 61 %, other 100 %"
    assert change_line(look(0, 0), look(900, 100)) == "experts 0 % -> 100 %, other 0 % -> 100 %"
    dense = Look((PartResidency("/m.gguf", 1000, 250, 0, 0),))
    assert change_line(dense, Look((PartResidency("/m.gguf", 1000, 500, 0, 0),))) == "in memory 25 % -> 50 %"


def test_a_change_of_what_is_unknown_is_unknown() -> None:
    assert change_line(look(1, 1), Look(unknown="it was replaced")) == "residency unknown: it was replaced"
    unlike = Look((PartResidency("/m.gguf", 1000, 250, None, None),))
    assert "replaced" in change_line(look(1, 1), unlike)


def report(**more: object) -> ResidencyReport:
    plain = ResidencyReport(
        model="/models/glm.gguf",
        size_bytes=1000 * MIB,
        resident_bytes=400 * MIB,
        expert_size_bytes=900 * MIB,
        expert_resident_bytes=300 * MIB,
        other_size_bytes=100 * MIB,
        other_resident_bytes=100 * MIB,
        parts=(PartResidency("/models/glm.gguf", 1000 * MIB, 400 * MIB, 900 * MIB, 300 * MIB),),
        filesystem="ext4",
        by="cachestat",
        unknown=None,
    )
    return msgspec.structs.replace(plain, **more)


def test_a_report() -> None:
    assert render(report(), None, Style()).splitlines() == [
        "glm.gguf: 1000 MiB, 40 % in memory (400 MiB)",
        "  experts  ██████░░░░░░░░░░░░░░      33 %  300 MiB of 900 MiB",
        "  other    ████████████████████     100 %  100 MiB of 100 MiB",
    ]


def test_parts_and_notes() -> None:
    parts = tuple(PartResidency(f"/models/a-very-long-name-{n:05}-of-00002.gguf", 500, 250 * n, 400, 0) for n in (1, 2))
    text = render(report(parts=parts, notes=("a\x1b note",)), None, Style(unicode=False))
    assert "in 2 files" in text
    assert "...00002-of-00002.gguf" in text
    assert "note      a\\x1b note" in text
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80


def test_a_dense_model_and_an_unknown_layout_have_one_line() -> None:
    for experts in (0, None):
        text = render(report(expert_size_bytes=experts, expert_resident_bytes=experts), None, Style())
        assert "  all  " in text
        assert "experts" not in text


def test_unknown_says_why() -> None:
    text = render(report(resident_bytes=None, unknown="the kernel does not tell"), None, Style())
    assert "what of it is in memory is unknown" in text
    assert "why       the kernel does not tell" in text
    assert "%" not in text


def test_what_would_have_been_served() -> None:
    text = render(report(served=ServedReport(0.87, 120, 90.0)), None, Style())
    assert "would have served 87 % of recent uses" in text
    assert "learned in 120 looks," in render(report(served=ServedReport(0.87, 120, 90.0)), None, Style(width=140))
    assert "learned in 1 look," in render(report(served=ServedReport(0.87, 1, 90.0)), None, Style(width=140))
    assert "unknown: nothing was learned" in render(
        report(served=ServedReport(unknown="nothing was learned")), None, Style()
    )


def pages(layers: int, experts: int, cached: int = 1, whole: int = 2) -> ExpertPages:
    return ExpertPages(layers, experts, (cached,) * (layers * experts), (whole,) * (layers * experts))


@pytest.mark.parametrize(
    ("cached", "whole", "expected"),
    [(0, 9, 0), (1, 9, 1), (2, 9, 1), (3, 9, 2), (5, 9, 2), (6, 9, 3), (8, 9, 3), (9, 9, 4), (1, 1, 4)],
)
def test_levels(cached: int, whole: int, expected: int) -> None:
    assert level(cached, whole) == expected


def test_a_small_map() -> None:
    cells = ExpertPages(2, 4, (0, 1, 2, 3, 3, 0, 0, 0), (3, 3, 3, 3, 3, 3, 3, 0))
    *legend, first, second = heat_map(cells, Style())
    assert first == "  0 ·▒▓█"
    assert second == "  1 █··"
    assert "a sign for an expert" in " ".join(legend)
    assert heat_map(cells, Style(unicode=False))[-2] == "  0 .+*#"


@given(st.integers(1, 120), st.integers(1, 600), st.integers(40, 120), st.booleans())
def test_it_always_fits(layers: int, experts: int, width: int, unicode: bool) -> None:
    lines = heat_map(pages(layers, experts), Style(width, False, unicode))
    assert max(map(len, lines)) <= max(width, 42)
    rows = [line for line in lines if re.match(r" +\d+(-\d+)? [·░▒▓█.+*#-]+$", line)]
    assert 1 <= len(rows) <= MOST_ROWS
    assert unicode or all(line.isascii() for line in lines)


@given(st.integers(1, 60), st.integers(1, 300), st.data())
def test_an_expert_that_is_there_is_seen(layers: int, experts: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, layers * experts - 1))
    cached = tuple(int(cell == at) for cell in range(layers * experts))
    lines = heat_map(ExpertPages(layers, experts, cached, (1,) * len(cached)), Style(unicode=False))
    rows = [line.split()[-1] for line in lines if re.match(r" +\d+(-\d+)? [.+*#-]+$", line)]
    assert sum(len(row.replace(".", "")) for row in rows) == 1


def test_colour_adds_nothing_but_colour() -> None:
    cells = pages(3, 5)
    coloured = "\n".join(heat_map(cells, Style(colour=True)))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == "\n".join(heat_map(cells, Style()))


def test_cells_as_shares() -> None:
    found = experts_report(ExpertPages(2, 2, (0, 1, 2, 0), (2, 2, 2, 0)))
    assert found.resident_ratio == ((0.0, 0.5), (1.0, None))


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_bar_is_full_only_when_all_is_there(part: int, whole: int) -> None:
    drawn = bar(min(part, whole), whole, Style(unicode=False))
    assert len(drawn) == len(bar(0, 1, Style()))
    assert ("." not in drawn) == (part >= whole)


def test_a_sentence_is_wrapped_as_the_report_is() -> None:
    text = "m.gguf: " + "word " * 20
    assert max(map(len, wrapped(text, 60))) <= 60
    assert wrapped(text, 60)[1].startswith("  word")
    assert wrapped(text, 60, inside=True)[1].startswith("    word")
    assert wrapped("/models/" + "x" * 90, 60) == ["/models/" + "x" * 90], "a path stays in one piece"
    unknown = report(model="/m/" + "a b " * 30, resident_bytes=None, unknown="why")
    assert max(map(len, render(unknown, None, Style(60)).splitlines())) <= 60
