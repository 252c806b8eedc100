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

from moetuned.cli.status_page import Page
from moetuned.cli.status_view import _warming, event_lines, render
from moetuned.cli.text_width import columns_of
from moetuned.schema.snapshot import PrefillView, ProtectView, WarmView
from moetuned.schema.supervision import SupervisionView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason, Verdict

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
    assert max(map(columns_of, plain.splitlines())) <= width
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
    assert max(map(columns_of, screen.splitlines())) <= max(width, 40)


def test_old_data_is_called_old():
    assert render(thrash(), 80, False, NOW + 60).startswith("moetuned has not looked for 1 min")
    assert "has not looked" not in render(thrash(), 80, False, NOW + 2)


def test_bars_show_the_share():
    screen = render(thrash(), 80, False, NOW)
    (line,) = [line for line in screen.splitlines() if line.startswith("  memory")]
    bar = line.split()[1]
    assert abs(len(re.sub("[^A-Z]", "", bar)) / len(bar) - 12 / 32) < 0.05
    assert abs(bar.count("▒") / len(bar) - 15 / 32) < 0.05


def test_events_have_a_date_when_it_is_not_today():
    lines = event_lines(thrash().events, None, now=NOW)
    assert lines[0].startswith("2027-01-14 07:00:00  backend_recovered: glm is ready")
    assert lines[1].startswith("07:59:20  thrash_begin glm: ")


def test_warming_is_never_said_to_be_complete_while_something_is_missing():
    mib = 1 << 20
    text = _warming(Page(100, colour=False), WarmView("paused", 37 * mib - 9000, 37 * mib), 0.0)
    assert "99 % paused, all but 9 KiB of 37.0 MiB" in text
    assert "100 %" not in text
    text = _warming(Page(100, colour=False), WarmView("paused", 37 * mib, 37 * mib), 0.0)
    assert "100 % paused, 37.0 MiB of 37.0 MiB" in text


def test_what_came_of_warming_has_its_age():
    """There may be room again since: the sentence is of then."""
    detail = "there is no free memory to warm the model into"
    snapshot = thrash()
    warm = WarmView("done", detail=detail, ended_wall_seconds=NOW - 300)
    backend = msgspec.structs.replace(snapshot.backends[0], warm=warm)
    screen = render(msgspec.structs.replace(snapshot, backends=(backend,)), 120, False, NOW)
    assert f"done, 5 min ago: {detail}" in screen


def test_nothing_is_locked_is_said_once():
    snapshot = thrash()
    backend = msgspec.structs.replace(snapshot.backends[0], protect=ProtectView("none", detail="protect is off"))
    screen = render(msgspec.structs.replace(snapshot, backends=(backend,)), 120, False, NOW)
    assert "  locked    nothing: protect is off" in screen


def test_what_speaks_against_what_is_learned_is_shown():
    snapshot = thrash()
    assert "learning" not in render(snapshot, 120, False, NOW)
    backend = msgspec.structs.replace(snapshot.backends[0], learning="it stayed in memory")
    screen = render(msgspec.structs.replace(snapshot, backends=(backend,)), 120, False, NOW)
    assert "  learning  it stayed in memory" in screen


@pytest.mark.parametrize(
    ("prefill", "line"),
    [
        (
            PrefillView(
                1024,
                3000,
                read_bytes=34 << 30,
                total_bytes=50 << 30,
                eta_seconds=40.0,
                eta_least_seconds=40.0,
                eta_most_seconds=40.0,
            ),
            "1024 of 3000 tokens, 34.0 GiB of about 50.0 GiB read, 40 s left; not hung",
        ),
        (
            PrefillView(512, None, 1024, 16384, read_bytes=8 << 30, eta_least_seconds=70.0),
            "at least 1024 tokens, at most 16384",
        ),
        (PrefillView(unknown="it has only begun"), "how long is unknown: it has only begun"),
    ],
)
def test_a_prompt_says_how_far_it_is(prefill, line):
    snapshot = thrash()
    backend = msgspec.structs.replace(snapshot.backends[0], prefill=prefill)
    screen = render(msgspec.structs.replace(snapshot, backends=(backend,)), 120, False, NOW)
    assert line in " ".join(screen.split())
    narrow = render(msgspec.structs.replace(snapshot, backends=(backend,)), 60, False, NOW)
    assert max(map(len, narrow.splitlines())) <= 60


def test_one_that_hangs_is_red():
    snapshot = thrash()
    reason = Reason("phase", "hung", 65.0, 60.0, 65.0, "hung")
    verdict = Verdict("glm", 1.0, phase=Phase.PREFILL, paging=Paging.STEADY, memory=MemoryState.OK, reasons=(reason,))
    backend = msgspec.structs.replace(snapshot.backends[0], verdict=verdict, sentence="hangs: for 65 s nothing moved")
    screen = render(msgspec.structs.replace(snapshot, backends=(backend,)), 80, True, NOW)
    lines = [line for line in screen.splitlines() if "hangs: for 65 s" in line]
    assert all("\x1b[31m" in line for line in lines)
    assert [STYLE.sub("", line)[:11] for line in lines] == ["glm: hangs:", "glm hangs: "]


@pytest.mark.parametrize("state", ["restarting", "paused"])
def test_what_is_wanted_is_no_alarm(state: str) -> None:
    snapshot = thrash()
    absent = msgspec.structs.replace(
        snapshot.backends[0], state=state, sentence="is quiet", verdict=Verdict("glm", 0.0, Phase.ABSENT)
    )
    screen = render(msgspec.structs.replace(snapshot, backends=(absent,)), 80, True, NOW)
    assert next(line for line in screen.splitlines() if "is quiet" in line).startswith("\x1b[33m")
    screen = render(
        msgspec.structs.replace(snapshot, backends=(msgspec.structs.replace(absent, state=""),)), 80, True, NOW
    )
    assert next(line for line in screen.splitlines() if "is quiet" in line).startswith("\x1b[31m")


def test_a_restart_that_waits_is_shown() -> None:
    snapshot = thrash()
    told = SupervisionView(waits="is restarted once its requests are answered, in 59 s at the latest")
    view = msgspec.structs.replace(snapshot.backends[0], supervision=told)
    assert "restart   is restarted once its requests" in render(
        msgspec.structs.replace(snapshot, backends=(view,)), 80, False, NOW
    )
