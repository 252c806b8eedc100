"""The kind simulator: command lines it takes for its own."""

from __future__ import annotations

import pytest

from moetuned.backends import simulator


@pytest.mark.parametrize(("words", "expected"), [(["serve"], True), (["make-model"], False), ([], False)])
def test_only_serving_counts(words: list[str], expected: bool) -> None:
    assert simulator.recognise(["python3", "-m", "moetuned.simulator", *words]) is expected


def test_arguments_begin_after_serve() -> None:
    assert (
        simulator.describe(["python3", "-m", "moetuned.simulator", "serve", "--port", "81"], {}).url
        == "http://127.0.0.1:81"
    )
