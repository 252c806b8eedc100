"""How far a prompt is, in words."""

from __future__ import annotations

import pytest

from moetuned.decide.prefill_text import eta_text, prefill_progress
from moetuned.schema.snapshot import PrefillView


@pytest.mark.parametrize(
    ("least", "most", "likely", "text"),
    [
        (0.0, None, None, ""),
        (0.4, 90.0, None, ""),
        (0.0, 3.0, None, "at most 3.0 s left"),
        (0.0, 0.2, 0.1, "nearly done"),
        (3.0, 9.0, 5.0, "3.0 s to 9.0 s left"),
        (None, None, None, ""),
    ],
)
def test_no_time_left_is_no_forecast(least: float | None, most: float | None, likely: float | None, text: str) -> None:
    assert eta_text(PrefillView(eta_least_seconds=least, eta_most_seconds=most, eta_seconds=likely)) == text


@pytest.mark.parametrize("read", [4096, 2 << 20, 20 << 20])
@pytest.mark.parametrize("total", [None, 26 << 10, 3 << 20])
def test_what_is_hardly_read_is_no_progress(read: int, total: int | None) -> None:
    assert prefill_progress(PrefillView(read_bytes=read, total_bytes=total, seconds=40.0)) == ""


def test_tokens_bytes_and_time() -> None:
    view = PrefillView(
        tokens_done=512, tokens_total=1024, read_bytes=8 << 30, total_bytes=16 << 30, seconds=10.0,
        eta_seconds=20.0, eta_least_seconds=20.0, eta_most_seconds=20.0,
    )  # fmt: skip
    assert prefill_progress(view) == "512 of 1024 tokens, 8.0 GiB of about 16.0 GiB read, 20 s left; not hung"
