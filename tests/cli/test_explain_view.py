from __future__ import annotations

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.explain_view import render
from moetuned.schema.explanation import AxisExplanation, Explanation, Explanations, UnknownSignal
from moetuned.schema.verdict import Check

STYLE = re.compile(r"\x1b\[[0-9;]*m")
FOUND = Explanations(
    (
        Explanation(
            "glm",
            80.0,
            (
                AxisExplanation(
                    "paging",
                    "warming",
                    12.0,
                    ("455 MB/s read",),
                    (
                        Check(
                            "bytes_per_token",
                            1.9e9,
                            6e8,
                            "bytes per token 1.9 GB, limit 620 MB, held 5 of 8 s",
                            beyond=True,
                            would="thrashing",
                        ),
                        Check(
                            "cache_lost_ratio", 0.0, 0.1, "cache lost 0 %, limit 10 %", beyond=False, would="thrashing"
                        ),
                        Check("tokens_per_second", text="speed unknown: no warm best", unknown="no warm best"),
                        Check("tokens_per_second", 3.0, unknown="no warm best", rule="slower than its own warm best"),
                        Check(
                            "process_read_bytes_per_second",
                            0.0,
                            8e6,
                            "process read 0 B/s, limit below 8.0 MB/s",
                            beyond=True,
                            would="steady",
                            rule="hardly anything is read",
                        ),
                        Check("refault_ratio", 0.1, 0.3, "refault 10 %", beyond=False, would="streaming"),
                        Check(
                            "read_amplification",
                            9.0,
                            4.0,
                            "read amplification 9.0; does not count: a prompt",
                            beyond=True,
                            aside="a prompt",
                        ),
                    ),
                    ("thrashing in 3.0 s if bytes per token stays above 620 MB",),
                ),
            ),
            (
                UnknownSignal("tokens_per_second", "no warm best"),
                UnknownSignal("stall_memory_full_ratio", "no PSI"),
                UnknownSignal("stall_memory_some_ratio", "no PSI"),
            ),
        ),
    )
)
SCREEN = """\
glm
paging: warming for 12 s
  because  455 MB/s read
  BEYOND   bytes per token 1.9 GB, limit 620 MB, held 5 of 8 s -> thrashing
  within   cache lost 0 %, limit 10 % -> thrashing
  unknown  speed: no warm best
  unknown  slower than its own warm best? speed 3.0 tokens/s: no warm best
  met      hardly anything is read? process read 0 B/s, limit below 8.0 MB/s ->
           steady
  not met  refault 10 % -> streaming
  aside    read amplification 9.0; does not count: a prompt
  would be thrashing in 3.0 s if bytes per token stays above 620 MB
other signals that are unknown, which no rule asks for now
  stall_memory_full_ratio, stall_memory_some_ratio: no PSI
"""


def test_the_screen() -> None:
    assert render(FOUND, 80, False) == SCREEN


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_it_fits_and_colour_only_adds_colour(width: int) -> None:
    plain = render(FOUND, width, False)
    assert max(map(len, plain.splitlines())) <= max(40, width)
    coloured = render(FOUND, width, True)
    assert coloured != plain
    assert STYLE.sub("", coloured) == plain


def test_good_news_is_no_warning() -> None:
    lines = render(FOUND, 80, True).splitlines()
    (beyond,) = (line for line in lines if "BEYOND" in line)
    (met,) = (line for line in lines if " met      " in STYLE.sub("", line))
    assert click.style("", fg="yellow", reset=False) in beyond
    assert click.style("", fg="green", reset=False) in met


def test_nothing_to_explain() -> None:
    assert "no backend to explain" in render(Explanations(), 80, False)


@given(st.text(max_size=100))
def test_no_text_from_outside_steers_the_terminal(text: str) -> None:
    axis = AxisExplanation(text, text, 1.0, (text,), (Check(text, text=text, would=text, beyond=True),), (text,))
    screen = render(Explanations((Explanation(text, 1.0, (axis,), (UnknownSignal(text, text),)),)), 60, False)
    assert all(char.isprintable() for char in screen.replace("\n", ""))
