"""Golden screens. After a wanted change: MOETUNED_WRITE_GOLDEN=1 pytest tests/cli/test_status_view.py, then read the diff."""

from __future__ import annotations

import os
import pathlib
import re
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from status_scenes import NOW, SCENES, thrash

from moetuned.cli.status_view import event_lines, render

GOLDEN = pathlib.Path(__file__).parent / "golden"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", SCENES)
def test_golden_screen(name):
    screen = render(SCENES[name](), 80, False, NOW)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("MOETUNED_WRITE_GOLDEN"):
        path.write_text(screen, encoding="utf-8")
    assert screen == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_fits_the_width_and_colour_only_adds_colour(name, width):
    plain = render(SCENES[name](), width, False, NOW)
    assert max(map(len, plain.splitlines())) <= width
    assert "\x1b" not in plain
    coloured = render(SCENES[name](), width, True, NOW)
    assert STYLE.sub("", coloured) == plain
    assert coloured != plain


@given(st.text(max_size=200), st.integers(0, 150))
def test_no_text_from_outside_can_steer_the_terminal(text, width):
    snapshot = thrash()
    backend = msgspec.structs.replace(snapshot.backends[0], name=text, sentence=text, model_path=text, would_do=(text,))
    events = tuple(msgspec.structs.replace(event, message=text, backend=text) for event in snapshot.events)
    screen = render(
        msgspec.structs.replace(snapshot, backends=(backend,), events=events, notes=(text,)), width, False, NOW
    )
    assert all(char.isprintable() for char in screen.replace("\n", ""))
    assert max(map(len, screen.splitlines())) <= max(width, 40)


def test_old_data_is_called_old():
    assert "old: the daemon has not looked since" in render(thrash(), 80, False, NOW + 60)
    assert "old:" not in render(thrash(), 80, False, NOW + 2)


def test_bars_show_the_share():
    screen = render(thrash(), 80, False, NOW)
    (line,) = [line for line in screen.splitlines() if line.startswith("  memory")]
    bar = re.sub(r"[^█▒░]", "", line)
    assert abs(bar.count("█") / len(bar) - 12 / 32) < 0.05
    assert abs(bar.count("▒") / len(bar) - 15 / 32) < 0.05


def test_events_have_a_date_when_it_is_not_today():
    lines = event_lines(thrash().events, None, now=NOW)
    assert lines[0].startswith("2027-01-14 07:00:00  backend_recovered: glm is ready")
    assert lines[1].startswith("07:59:20  thrash_begin glm: ")
