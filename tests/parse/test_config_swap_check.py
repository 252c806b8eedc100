from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.config_swap_check import check_swap
from moetuned.schema.swap import Swap

FILE = "/var/lib/moetuned/swapfile"


@pytest.mark.parametrize(
    "wish",
    [
        None,
        Swap(file=FILE),
        Swap(zram="auto"),
        Swap(file=FILE, size="64MiB", zram=64 << 20, priority=0),
        Swap(file="/a b/ü", size="1TiB"),
    ],
)
def test_what_is_right(wish: Swap | None) -> None:
    assert list(check_swap(wish)) == []


@pytest.mark.parametrize(
    ("wish", "path", "hint"),
    [
        (Swap(), "tuning.swap", "neither file nor zram"),
        (Swap(file="swapfile"), "tuning.swap.file", "absolute path"),
        (Swap(file="/"), "tuning.swap.file", "plain path"),
        (Swap(file="/var/"), "tuning.swap.file", "plain path"),
        (Swap(file="/var/../etc/passwd"), "tuning.swap.file", "plain path"),
        (Swap(file="//swap"), "tuning.swap.file", "plain path"),
        (Swap(file="/var/a\nb"), "tuning.swap.file", "printable"),
        (Swap(file="/var/a\0b"), "tuning.swap.file", "printable"),
        (Swap(file="/var/" + "a" * 129), "tuning.swap.file", "128"),
        (Swap(file="/" + "a/" * 600 + "b"), "tuning.swap.file", "1024 bytes"),
        (Swap(file="/dev/sda1"), "tuning.swap.file", "not on a disk"),
        (Swap(file="/run/swap"), "tuning.swap.file", "not on a disk"),
        (Swap(file=FILE, size="63MiB"), "tuning.swap.size", "between 64.0 MiB and 1.0 TiB"),
        (Swap(file=FILE, size="2TiB"), "tuning.swap.size", "between"),
        (Swap(file=FILE, size="much"), "tuning.swap.size", "or auto"),
        (Swap(zram="1"), "tuning.swap.zram", "between 64.0 MiB and 256 GiB"),
        (Swap(zram=""), "tuning.swap.zram", "or auto"),
        (Swap(file=FILE, zram="auto", priority=32767), "tuning.swap.priority", "below 32767"),
    ],
)
def test_what_is_wrong(wish: Swap, path: str, hint: str) -> None:
    (problem,) = check_swap(wish)
    assert (problem.path, problem.severity) == (path, "error")
    assert hint in str(problem)


def test_what_has_no_effect_is_a_warning() -> None:
    found = list(check_swap(Swap(zram="auto", size="4GiB", priority=3)))
    assert [(problem.path, problem.severity) for problem in found] == [
        ("tuning.swap.size", "warning"),
        ("tuning.swap.priority", "warning"),
    ]


@given(st.text(max_size=30), st.one_of(st.text(max_size=12), st.integers()), st.one_of(st.none(), st.text(max_size=12)))
def test_any_text_is_checked_without_an_error(file: str, size: str | int, zram: str | None) -> None:
    for problem in check_swap(Swap(file=file, size=size, zram=zram)):
        assert str(problem).isprintable()
