from __future__ import annotations

import pytest

from moetuned.cli.alerts_view import NONE, render_list, test_line
from moetuned.schema.alert_view import AlertsAnswer, AlertSinkView, DeliveryView
from moetuned.schema.event import EventName

NOW = 1_800_000_000.0
LAST = DeliveryView(EventName.THRASH_BEGIN, "1-2", True, "https://example.org/… answered 200 OK", NOW - 90, 0.25)
WELL = AlertSinkView("webhook", "webhook", "https://example.org/…", kept=True, last=LAST)
TROUBLED = AlertSinkView(
    "phone",
    "ntfy",
    "https://ntfy.sh/…",
    on=(EventName.BACKEND_DOWN, EventName.THRASH_BEGIN),
    backends=("glm",),
    at_most="20/h",
    quiet_hours="22:00-07:00",
    loud=(EventName.BACKEND_DOWN,),
    kept=True,
    waiting=3,
    tries=4,
    next_try_seconds=120.0,
    held=1,
    held_back=2,
    dropped=5,
    failed=6,
    last=DeliveryView(EventName.BACKEND_DOWN, "1-3", False, "https://ntfy.sh/… answered 503", NOW - 30),
    problem="what waits for it cannot be kept",
)


def test_one_that_is_well() -> None:
    assert render_list(AlertsAnswer((WELL,)), 80, False, NOW) == (
        "webhook  https://example.org/…\n"
        "  told: all events\n"
        "  last: thrash_begin, delivered 1 min 30 s ago: https://example.org/… answered\n"
        "  200 OK\n"
    )


def test_one_with_all_that_can_be_said() -> None:
    assert render_list(AlertsAnswer((TROUBLED,)), 120, False, NOW) == (
        "phone (ntfy)  https://ntfy.sh/…\n"
        "  broken: what waits for it cannot be kept\n"
        "  told: backend_down, thrash_begin and their ends; only of glm; at most 20/h; quiet 22:00-07:00 but for backend_down\n"
        "  last: backend_down, failed 30 s ago: https://ntfy.sh/… answered 503\n"
        "  waiting: 3, the first was tried 4 times, the next try is in 2 min\n"
        "  alerts held until they may go: 1, held back since the last: 2, dropped: 5, not delivered: 6\n"
    )


def test_none_and_one_that_told_nothing() -> None:
    assert render_list(AlertsAnswer(), 80, False, NOW) == NONE + "\n"
    text = render_list(
        AlertsAnswer((AlertSinkView("exec", "exec", "/h", ends=False, on=(EventName.TEST,), sending=True, waiting=1),)),
        80,
        False,
        NOW,
    )
    assert text == "exec  /h\n  told: test\n  last: nothing was told yet\n  waiting: 1, it is being delivered\n"


@pytest.mark.parametrize("width", [1, 20, 40, 80])
def test_it_keeps_to_the_width_and_its_words(width: int) -> None:
    wide = render_list(AlertsAnswer((TROUBLED, WELL)), 500, False, NOW)
    narrow = render_list(AlertsAnswer((TROUBLED, WELL)), width, False, NOW)
    assert narrow.split() == wide.split()
    assert "\x1b" not in narrow
    assert "\x1b" in render_list(AlertsAnswer((TROUBLED, WELL)), width, True, NOW)


def test_what_came_from_outside_is_cleaned() -> None:
    bad = DeliveryView(EventName.TEST, "1-2", False, "a\x1b[31mb\nc", NOW)
    view = AlertSinkView("exec", "exec", "/a\x1b[2J", last=bad)
    assert "\x1b" not in render_list(AlertsAnswer((view,)), 80, False, NOW)
    assert "\x1b" not in test_line(view, bad, 4)


def test_lines_of_a_test() -> None:
    assert test_line(WELL, LAST, 9) == "webhook    ok      https://example.org/… answered 200 OK (0.2 s)"
    assert test_line(TROUBLED, TROUBLED.last, 5) == "phone  failed  https://ntfy.sh/… answered 503"
    assert test_line(TROUBLED, None, 5) == "phone  no answer  what waits for it cannot be kept"
    assert "took too long" in test_line(WELL, None, 7)


test_line.__test__ = False  # type: ignore[attr-defined]
