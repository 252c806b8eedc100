from __future__ import annotations

import errno

import pytest

from moetuned.schema.swap import SwapKind, SwapStep, SwapStepKind
from moetuned.state.swap_record import SwapRecordError
from moetuned.state.swap_views import said, view, with_priority

STEP = SwapStep("swap zram", SwapKind.ZRAM, SwapStepKind.KEEP, "1 GiB", why="because", priority=100)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no room left"),
        (OSError(errno.EIO, "Input/output error", "/x"), "Input/output error"),
        (OSError("mkswap failed with code 1"), "mkswap failed with code 1"),
        (SwapRecordError("the record is damaged"), "the record is damaged"),
    ],
)
def test_what_went_wrong_in_words(error: Exception, words: str) -> None:
    assert said(error) == words


@pytest.mark.parametrize(
    ("priority", "detail"),
    [
        (100, "because"),
        (5, "because; its priority stays 5 until it is made anew"),
        (None, "because; its priority stays the kernel's choice until it is made anew"),
    ],
)
def test_another_priority_than_the_wished_one_stays_and_is_said(priority: int | None, detail: str) -> None:
    assert with_priority(STEP, priority) == detail


def test_before_moetuned_there_was_none_of_it() -> None:
    assert view("swap zram", "applied", "1 GiB", "1 GiB", "because").original == "none"
