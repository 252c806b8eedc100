"""Which format of metrics an Accept header asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.accept_header import prefers_openmetrics

PROMETHEUS_2_42 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
TEXT_FIRST = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2"


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (PROMETHEUS_2_42, True),
        (PROMETHEUS_3, True),
        (TEXT_FIRST, False),
        ("application/openmetrics-text", True),
        ('Application/OpenMetrics-Text; Version="1.0.0"; charset=utf-8', True),
        ("application/openmetrics-text;q=0.9, */*;q=0.1", True),
        ("application/openmetrics-text, text/plain", True),
        ("application/openmetrics-text;q=0.2, */*", False),
        ("application/openmetrics-text;q=0.2, text/*;q=0.3", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nan", False),
        ("application/openmetrics-text;q=2", False),
        ("application/openmetrics-text;q=", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("", False),
        (None, False),
        (",;=,;;q=1,=", False),
    ],
)
def test_what_is_asked_for(header: str | None, wanted: bool) -> None:
    assert prefers_openmetrics(header) is wanted


def test_only_so_many_ranges_are_looked_at() -> None:
    assert prefers_openmetrics("a/b," * 31 + "application/openmetrics-text")
    assert not prefers_openmetrics("a/b," * 32 + "application/openmetrics-text")


PIECES = st.sampled_from(
    [
        "application/openmetrics-text",
        "text/plain",
        "*/*",
        ";q=",
        "0.5",
        "1",
        ",",
        ";",
        "=",
        "version=1.0.0",
        " ",
        "\x00",
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200))
def test_any_header_gets_an_answer_and_only_one_that_names_it_openmetrics(header: str) -> None:
    assert not prefers_openmetrics(header) or "application/openmetrics-text" in header.lower()
