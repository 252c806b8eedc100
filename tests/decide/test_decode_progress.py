from __future__ import annotations

from typing import Any

import pytest
from signal_cases import facts_of, sample_of

from moetuned.decide.decode_progress import decode_progress
from moetuned.decide.window import window_of


def busy(decoded: int | None, task: int = 1) -> dict[str, Any]:
    return {"processing": True, "task_id": task, "decoded_tokens": decoded}


def progress(*ticks: list[dict[str, Any]] | None, seconds: float = 10.0) -> tuple[float, float] | None:
    samples = [
        sample_of({"t": at, "http": {"health": "busy"}} if slots is None else {"t": at, "slots": slots})
        for at, slots in enumerate(ticks)
    ]
    window = window_of(samples, "one", facts_of({}))
    assert window is not None
    found = decode_progress(window, seconds)
    return None if found is None else (found.tokens, found.seconds)


@pytest.mark.parametrize(
    ("ticks", "found"),
    [
        (([busy(1)], [busy(4)], [busy(6)]), (5, 2)),
        (([busy(0)], [busy(4)], [busy(6)]), (2, 1)),
        (([busy(9)], [busy(2, task=2)], [busy(6, task=2)]), (4, 1)),
        (([busy(1)], None, [busy(6)]), (5, 2)),
        (([busy(1)], [busy(4)], None, None), (3, 1)),
        (([busy(1), busy(1, task=2)], [busy(2), busy(4, task=2)]), (4, 1)),
        (([busy(1)], [busy(2), busy(4, task=2)]), None),
        (([busy(5)], [busy(2)]), None),
        (([busy(5)], [busy(None)]), None),
        (([busy(5)], [{"processing": False}]), None),
        (([busy(5)],), None),
        ((None, None), None),
    ],
)
def test_progress_over_unbroken_decode(ticks: tuple[Any, ...], found: tuple[float, float] | None) -> None:
    assert progress(*ticks) == found


def test_only_the_last_seconds_count() -> None:
    assert progress([busy(1)], [busy(11)], [busy(12)], [busy(13)], seconds=2.0) == (2, 2)
