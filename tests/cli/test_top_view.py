"""Golden pictures. After a wanted change: MOETUNED_WRITE_GOLDEN=1 pytest tests/cli/test_top_view.py, then read the diff."""

from __future__ import annotations

import itertools
import os
import pathlib
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from top_scenes import NOW, SCENES, squeezed, two

from moetuned.cli.styled_line import plain, styled
from moetuned.cli.text_width import columns_of
from moetuned.cli.top_state import ZOOMS, Sort, TopState
from moetuned.cli.top_view import Screen, Top, draw
from moetuned.schema.neighbour import Neighbour

GOLDEN = pathlib.Path(__file__).parent / "golden"
SIZES = {40: 20, 80: 24, 160: 30}


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def picture(top: Top, columns: int = 80, rows: int | None = 24, state: TopState | None = None, **screen: bool) -> str:
    lines = draw(top, state or TopState(), Screen(columns, rows, **screen), NOW)
    return "".join(f"{plain(line)}\n" for line in lines)


@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.parametrize("name", SCENES)
def test_golden_pictures(name: str, columns: int) -> None:
    shown = picture(SCENES[name](), columns, SIZES[columns])
    path = GOLDEN / f"top_{name}_{columns}.txt"
    if os.environ.get("MOETUNED_WRITE_GOLDEN"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SCENES)), st.integers(1, 200), st.integers(1, 60), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from(ZOOMS), st.sampled_from((None, "glm", "dense")),
)  # fmt: skip
def test_it_fits_any_size(name, columns, rows, unicode, only, showing_help, seconds, chosen) -> None:
    state = TopState(chosen=chosen, only=only, help=showing_help, seconds_a_column=seconds)
    lines = draw(SCENES[name](), state, Screen(columns, rows, unicode), NOW)
    assert len(lines) <= rows
    for line in lines:
        assert columns_of(plain(line)) <= columns
        assert unicode or plain(line).isascii()
        assert "\x1b" not in styled(line, colour=False)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80), st.integers(1, 120))
def test_no_text_from_outside_can_steer_the_terminal(text: str, columns: int) -> None:
    top = squeezed()
    assert top.snapshot is not None
    neighbour = Neighbour("x", "read", 1, 1.0, text=text)
    backend = msgspec.structs.replace(top.snapshot.backends[0], name=text, sentence=text, neighbours=(neighbour,))
    events = tuple(msgspec.structs.replace(event, message=text, backend=text) for event in top.snapshot.events)
    snapshot = msgspec.structs.replace(top.snapshot, backends=(backend,), events=events)
    shown = picture(Top(snapshot, top.history, (text,), text), columns)
    assert all(char.isprintable() for char in shown.replace("\n", ""))
    assert max(map(columns_of, shown.splitlines())) <= columns


def test_numbers_have_units() -> None:
    shown = picture(squeezed())
    for part in (
        "457 MB/s",
        "455 MB/s",
        "0.9/s",
        "630/s",
        "32 %",
        "8.0 GiB",
        "of 47.0 GiB",
        "of 32.0 GiB",
        "thrashing",
    ):
        assert part in shown


def test_without_unicode_it_is_drawn_too() -> None:
    shown = picture(squeezed(), unicode=False)
    assert shown.isascii()
    (reads,) = [line for line in shown.splitlines() if line.startswith("  reads")]
    assert "#" in reads
    assert "j k choose" in shown


def test_old_data_is_called_old_and_a_daemon_that_is_away_is_named() -> None:
    shown = "\n".join(plain(line) for line in draw(squeezed(), TopState(), Screen(80, 24), NOW + 60))
    assert "This is 1 min old: the daemon has not looked since." in shown
    paused = "\n".join(plain(line) for line in draw(squeezed(), TopState(paused=True), Screen(80, 24), NOW + 60))
    assert "PAUSED" in paused
    assert " old" not in paused
    away = picture(SCENES["away"]())
    assert away.splitlines()[1].startswith("moetuned is not running")
    assert "reads     457 MB/s" in away


def test_the_chosen_one_is_whole_and_the_other_has_what_is_left() -> None:
    for chosen, other in (("glm", "dense"), ("dense", "glm")):
        shown = picture(two(), 80, 16, TopState(chosen=chosen))
        (begin,) = [number for number, line in enumerate(shown.splitlines()) if line.startswith(f"> {chosen}")]
        block = [line.split()[0] for line in shown.splitlines()[begin + 1 :] if line.startswith("  ")]
        assert block[-7:].count("reads") <= 1
        for label in ("reads", "refaults", "faults", "tokens", "headroom"):
            assert any(line.startswith(f"  {label}") for line in shown.splitlines()[begin:])
        assert any(line.startswith(f"  {other}") for line in shown.splitlines())


def test_only_the_chosen_one() -> None:
    shown = picture(two(), state=TopState(chosen="glm", only=True))
    assert "dense" not in shown
    assert shown.splitlines()[1].startswith("glm is not running")


def test_order() -> None:
    def first(sort: Sort) -> str:
        return picture(two(), state=TopState(sort=sort)).splitlines()[1]

    assert first(Sort.READS).startswith("> dense")
    assert first(Sort.NAME).startswith("> dense")
    assert first(Sort.HEADROOM).startswith("> dense")
    glm = msgspec.structs.replace(two().snapshot.backends[0], name="a-glm")
    snapshot = msgspec.structs.replace(two().snapshot, backends=(glm, two().snapshot.backends[1]))
    assert picture(Top(snapshot), state=TopState(sort=Sort.NAME)).splitlines()[1].startswith("> a-glm")


def test_more_backends_than_lines() -> None:
    top = two()
    many = tuple(msgspec.structs.replace(top.snapshot.backends[1], name=f"b{number:02}") for number in range(40))
    snapshot = msgspec.structs.replace(top.snapshot, backends=many)
    for chosen in ("b00", "b20", "b39"):
        shown = picture(Top(snapshot), 80, 10, TopState(chosen=chosen, sort=Sort.NAME)).splitlines()
        assert len(shown) == 10
        assert any(line.startswith(f"> {chosen}") for line in shown)


def test_a_sentence_that_was_cut_says_so() -> None:
    for rows in range(6, 20):
        shown = picture(two(), 40, rows).splitlines()
        (begin,) = [number for number, line in enumerate(shown) if line.startswith("> dense")]
        after = itertools.takewhile(lambda line: line.startswith("    "), shown[begin + 1 :])
        said = " ".join([shown[begin], *after])
        assert said.endswith("…") == ("1.4 tokens/s" not in said), shown


def test_help_says_every_key() -> None:
    shown = picture(squeezed(), state=TopState(help=True))
    for word in ("quit", "pause", "sort", "choose", "only that one", "seconds", "refaults", "T thrashing"):
        assert word in shown


def test_once_has_all_of_it_and_no_line_of_keys() -> None:
    shown = picture(two(), rows=None)
    assert shown.count("headroom") == 2
    assert "q quit" not in shown


def test_backends_are_not_named_as_others() -> None:
    top = two()
    itself = Neighbour("server", "read", 1 << 30, 10.0, pid=4242, text="server (pid 4242) read 1.0 GiB")
    dense = msgspec.structs.replace(top.snapshot.backends[1], neighbours=(itself,), pid=5)
    glm = msgspec.structs.replace(top.snapshot.backends[0], pid=4242)
    shown = picture(Top(msgspec.structs.replace(top.snapshot, backends=(glm, dense))))
    assert "pid 4242" not in shown


def test_what_a_process_does_now_is_said_instead_of_what_it_did() -> None:
    top = SCENES["beside"]()
    assert "rsync (pid 812, backup.service) read 42.0 GiB" in picture(top)
    now = msgspec.structs.replace(top, others=("rsync (pid 812, backup.service) reads 140 MB/s",))
    assert "42.0 GiB" not in picture(now)
    assert "firefox (pid 7) grew 6.0 GiB" in picture(now)


def test_its_verdict_has_the_colour_that_status_gives_it() -> None:
    top, state = squeezed(), TopState()
    styles = {style for line in draw(top, state, Screen(80, 24), NOW) for text, style in line if text.startswith("glm")}
    assert styles == {"red"}


@pytest.mark.parametrize("rows", [None, *range(8, 50)])
def test_events_begin_with_their_beginning(rows: int | None) -> None:
    top = squeezed()
    assert top.snapshot is not None
    events = tuple(
        msgspec.structs.replace(top.snapshot.events[0], message=f"glm: event {number} " + "word " * 20)
        for number in range(9)
    )
    top = msgspec.structs.replace(top, snapshot=msgspec.structs.replace(top.snapshot, events=events))
    shown = picture(top, 80, rows).split("\n")
    told = [line for line in shown if "word" in line]
    assert told == [] or " event " in told[0]
    assert rows is not None or len(told) == 4
