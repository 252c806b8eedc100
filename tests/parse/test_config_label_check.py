"""Labels of alerts: names and values, as a config writes them."""

from __future__ import annotations

import pytest

from moetuned.parse.config_label_check import check_labels
from moetuned.parse.config_text import ConfigError, load


def says(labels: dict[str, str]) -> list[str]:
    return [f"{problem.path}: {problem.hint}" for problem in check_labels(("alerts", 0), labels)]


def test_good_labels() -> None:
    assert says({"team": "ml", "instance": "box 1", "_x9": "größer"}) == []


@pytest.mark.parametrize("name", ["", "9a", "a-b", "a.b", "__x", "ä", "x" * 64])
def test_what_is_no_name(name: str) -> None:
    (problem,) = says({name: "x"})
    assert "is no label's name" in problem


@pytest.mark.parametrize("name", ["alertname", "severity", "backend"])
def test_what_moetuned_sets_itself(name: str) -> None:
    (problem,) = says({name: "x"})
    assert problem.startswith(f"alerts[0].labels.{name}: is set by moetuned")


@pytest.mark.parametrize("value", ["", "a\nb", "x" * 201])
def test_values_are_one_line(value: str) -> None:
    (problem,) = says({"team": value})
    assert "must be one line of 1 to 200 characters" in problem


def test_no_more_than_sixteen() -> None:
    assert says({f"x{number}": "y" for number in range(16)}) == []
    (problem,) = says({f"x{number}": "y" for number in range(17)})
    assert "at most 16 are allowed" in problem


def test_a_config_says_where() -> None:
    with pytest.raises(ConfigError, match=r"alerts\[0\]\.labels\.severity"):
        load([("c", "alerts: [{kind: alertmanager, urls: ['http://127.0.0.1:9093'], labels: {severity: page}}]\n")])
