from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import alert_text
from moetuned.schema.event import Event, EventName
from moetuned.schema.verdict import Reason


def event(**changes: object) -> Event:
    fields: dict[str, object] = {
        "id": "1-2",
        "name": EventName.THRASH_BEGIN,
        "wall_seconds": 1_800_000_000.25,
        "at_seconds": 10.0,
        "backend": "glm",
        "message": "glm thrashes",
        "reasons": (
            Reason("paging", "refault_ratio", 0.9, 0.5, 8.0, "refaults 90 %"),
            Reason("paging", "x", None, None, None, "slow"),
        ),
    }
    return Event(**(fields | changes))


def test_every_event_has_a_title() -> None:
    assert set(alert_text.TITLES) == set(EventName)


def test_a_title_names_the_backend_unless_it_is_about_the_machine() -> None:
    assert alert_text.title(event()) == "glm: thrashing"
    assert alert_text.title(event(name=EventName.TUNING_DRIFTED, backend=None)) == "a setting was changed"


def test_reasons_are_lines() -> None:
    assert alert_text.reasons(event()) == "refaults 90 %\nslow"
    assert alert_text.reasons(event(reasons=())) == ""


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\r\nBcc: x", "a Bcc: x"),
        ("a\0b\x1b[31mc", "a b [31mc"),
        ("\u202egnp.exe", "gnp.exe"),
        ("  many \t blanks\n", "many blanks"),
        ("\ud800 half", "half"),
        ("größer ✓", "größer ✓"),
    ],
)
def test_one_line_holds_nothing_that_steers(text: str, clean: str) -> None:
    assert alert_text.one_line(text, 100) == clean


def test_what_is_cut_says_so_and_cuts_no_character() -> None:
    assert alert_text.cut("ö" * 10, 20) == "ö" * 10
    assert alert_text.cut("ö" * 10, 19) == "ö" * 8 + "…"


@given(st.text(), st.integers(3, 50))
def test_anything_is_within_its_limit_and_one_line(text: str, limit: int) -> None:
    line = alert_text.one_line(text, limit)
    assert len(line.encode()) <= limit
    assert all(char.isprintable() for char in line)
    assert len(alert_text.cut(text, limit).encode()) <= limit


@given(st.lists(st.text()), st.text(), st.text())
def test_what_sinks_say_is_bounded(reasons: list[str], message: str, backend: str) -> None:
    told = event(
        message=message,
        backend=backend,
        reasons=tuple(Reason("memory", "s", None, None, None, text) for text in reasons),
    )
    assert len(alert_text.title(told).encode()) <= alert_text.TITLE_BYTES
    assert len(alert_text.message(told).encode()) <= alert_text.MESSAGE_BYTES
    assert len(alert_text.reasons(told).encode()) <= alert_text.REASONS_BYTES
