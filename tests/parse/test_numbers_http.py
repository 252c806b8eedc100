"""A generic server's numbers: which lines they are found in, and at what cost at most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.numbers_http import number_pattern, numbers_of, numbers_paths, parse_numbers_http
from moetuned.schema.config import Generic
from moetuned.schema.sample import BackendHttp, HttpNumbers

NUMBERS = numbers_of(
    Generic(
        process="x", health="/ready", metrics="/stats", tokens=r"gen_total (\S+)", prompt_tokens=r"prompt_total\{[^}]*\} (\S+)",
        requests=r"running (\S+)",
    )
)  # fmt: skip
METRICS = '# HELP gen_total all\n# TYPE gen_total counter\ngen_total 41\nprompt_total{m="a"} 1.5e3\nrunning 2\n'


def told(metrics: str, health: str = "OK") -> BackendHttp:
    assert NUMBERS is not None
    return parse_numbers_http({"/ready": health, "/stats": metrics}, NUMBERS)


def test_all_of_its_numbers() -> None:
    said = told(METRICS)
    assert (said.health, said.tokens_predicted_total, said.prompt_tokens_total, said.requests_processing) == (
        "ok",
        41,
        1500,
        2,
    )
    assert said.counts_live
    assert not said.tells_slots


@pytest.mark.parametrize(
    ("metrics", "tokens"),
    [
        ("", None),
        ("a_gen_total 5", None),
        ("gen_total many\ngen_total 5", None),
        ("gen_total -1", None),
        ("gen_total inf", None),
        ("gen_total 5", 5),
        ("gen_total\ngen_total 6", 6),
        ("gen_total \n" * 16 + "gen_total 7", None),
        ("!404 Not Found", None),
    ],
)
def test_a_line_counts_from_its_beginning(metrics: str, tokens: float | None) -> None:
    assert told(metrics).tokens_predicted_total == tokens


@pytest.mark.parametrize(
    ("health", "expected"), [("!503 x", "loading"), ("!404 x", "error"), ("!refused", "unreachable"), ("", "ok")]
)
def test_health_is_its_status(health: str, expected: str) -> None:
    assert told("", health).health == expected


@pytest.mark.parametrize("text", ["tokens", r"(\S+)", r"a(\d+)", r"abc|(\d+)", "(a+)+", r"abc*(\d+) .* x"])
def test_expressions_of_no_use_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        number_pattern(text)


def test_nothing_said_is_nothing_asked() -> None:
    assert numbers_of(None) is None
    assert numbers_paths(None) is None
    said = parse_numbers_http({"/health": "x"}, HttpNumbers("/health"))
    assert (said.health, said.tokens_predicted_total, said.counts_live) == ("ok", None, False)


@given(st.text("gen_total 0123.e+-\n", max_size=80))
def test_numbers_are_sensible_or_unknown(metrics: str) -> None:
    tokens = told(metrics).tokens_predicted_total
    assert tokens is None or 0 <= tokens < 1 << 53
