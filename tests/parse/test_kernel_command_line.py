from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.kernel_command_line import Decided, decided_settings

THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def test_what_is_decided_with_the_words_that_do() -> None:
    assert decided_settings("root=/dev/vda quiet transparent_hugepage=never sysctl.vm.swappiness=10\n") == {
        THP: Decided("never", "transparent_hugepage=never"),
        "/proc/sys/vm/swappiness": Decided("10", "sysctl.vm.swappiness=10"),
    }


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("transparent-hugepage=madvise", THP, "madvise"),
        ("sysctl/vm/dirty_ratio=5", "/proc/sys/vm/dirty_ratio", "5"),
        ("sysctl.vm/dirty_ratio=5", "/proc/sys/vm/dirty_ratio", "5"),
        ('sysctl.kernel.printk="4 4 1 7"', "/proc/sys/kernel/printk", "4 4 1 7"),
        ('"sysctl.kernel.printk=4 4 1 7"', "/proc/sys/kernel/printk", "4 4 1 7"),
        ("zswap.enabled=1", "/sys/module/zswap/parameters/enabled", "1"),
        ("zswap.max-pool-percent=20", "/sys/module/zswap/parameters/max_pool_percent", "20"),
        (
            "transparent_hugepage_shmem=advise",
            "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "advise",
        ),
    ],
)
def test_spellings(words: str, path: str, value: str) -> None:
    assert decided_settings(f"quiet {words} ro") == {path: Decided(value, words)}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "transparent_hugepage=sometimes",
        "transparent_hugepage",
        "sysctl.vm.swappiness",
        "sysctl.vm.swappiness=",
        "sysctl.=1",
        "mysysctl.vm.swappiness=1",
        "elevator=none",
        "init=/x -- transparent_hugepage=never",
    ],
)
def test_what_decides_nothing(line: str) -> None:
    assert decided_settings(line) == {}


def test_the_last_word_wins_and_one_that_is_no_choice_is_ignored() -> None:
    line = "transparent_hugepage=never transparent_hugepage=always transparent_hugepage=maybe"
    assert decided_settings(line)[THP].value == "always"


@given(st.text())
def test_any_text_is_answered(line: str) -> None:
    for path, decided in decided_settings(line).items():
        assert path.startswith(("/proc/sys/", "/sys/"))
        assert decided.words in line


@given(st.text(st.characters(codec="ascii", exclude_characters='"', exclude_categories=["Cc"]), min_size=1))
def test_a_quoted_value_is_kept_whole(value: str) -> None:
    assert decided_settings(f'a sysctl.x="{value}" b')["/proc/sys/x"].value == value
