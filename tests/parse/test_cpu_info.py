from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.cpu_info import parse_cpu_features, parse_cpu_list, parse_load


def test_features_of_both_families():
    assert parse_cpu_features("processor\t: 0\nflags\t\t: fpu avx2 avx\n\nprocessor\t: 1\nflags\t: x\n") == (
        "avx",
        "avx2",
        "fpu",
    )
    assert parse_cpu_features("processor\t: 0\nFeatures\t: fp asimd i8mm\n") == ("asimd", "fp", "i8mm")
    assert parse_cpu_features("nothing here") == ()
    assert parse_cpu_features(None) == ()


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", {0}), ("0-2,5\n", {0, 1, 2, 5}), ("", None), ("3-1", None), ("a", None), ("0-99999999", None), (None, None)],
)
def test_lists_of_cpus(text: str | None, cpus: set[int] | None):
    assert parse_cpu_list(text) == (None if cpus is None else frozenset(cpus))


@pytest.mark.parametrize(
    ("text", "load"), [("4.25 3.1 2.0 1/200 77\n", 4.25), ("", None), ("nan 1 1", None), ("-1.0", None), (None, None)]
)
def test_load(text: str | None, load: float | None):
    assert parse_load(text) == load


@given(st.text(alphabet="0123456789-,\n ", max_size=40))
def test_any_list_is_read_or_refused(text: str):
    found = parse_cpu_list(text)
    assert found is None or all(cpu >= 0 for cpu in found)
