from __future__ import annotations

import subprocess
import sys

import pytest

from moetuned.parse.close_match import close_match


@pytest.mark.parametrize(
    ("word", "least_ratio", "expected"),
    [
        ("swapines", 0.6, "swappiness"),
        ("llama", 0.9, None),
        ("entirely", 0.6, None),
        ("llama-servr", 0.6, "llama-server"),
    ],
)
def test_the_nearest(word: str, least_ratio: float, expected: str | None) -> None:
    assert close_match(word, ["swappiness", "llama-server", "dirty"], least_ratio) == expected


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert close_match("a", ()) is None


def test_a_config_without_mistakes_does_not_load_what_compares_words() -> None:
    script = (
        "import sys; from moetuned.parse import config_check, config_shape, close_match;"
        "assert 'difflib' not in sys.modules; close_match.close_match('a', ['b']); print('difflib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
