from __future__ import annotations

import pytest

from moetuned.decide.check_text import amount, check_text, label
from moetuned.decide.signals import signal_functions
from moetuned.schema.verdict import Check


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (
            Check("bytes_per_token", 1.9e9, 620e6, beyond=True, held_seconds=5.0, needed_seconds=8.0),
            "bytes per token 1.8 GiB, limit 591 MiB, held 5 of 8 s",
        ),
        (
            Check("refault_ratio", 0.98, 0.3, beyond=True, held_seconds=100.0, needed_seconds=8.0),
            "refault 98 %, limit 30 %, held 1 min 40 s (needs 8.0 s)",
        ),
        (
            Check("headroom_bytes", 10e6, 80e6, above=False, beyond=True, held_seconds=65.0, needed_seconds=90.0),
            "headroom 9.5 MiB, limit below 76.3 MiB, held 1 min 5 s of 1 min 30 s",
        ),
        (
            Check("tokens_per_second", 3.0, 1.0, above=False, beyond=False, held_seconds=0.0, needed_seconds=8.0),
            "speed 3.0 tokens/s, limit below 1.0 tokens/s",
        ),
        (
            Check("cache_lost_ratio", None, 0.1, unknown="no cgroup of its own"),
            "cache lost unknown: no cgroup of its own",
        ),
        (
            Check("cache_lost_ratio", 0.2, 0.1, unknown="layout unknown"),
            "cache lost 20 %, limit 10 %; unknown: layout unknown",
        ),
        (
            Check("read_amplification", 9.0, 4.0, aside="a prompt"),
            "read amplification 9.0 times, limit 4.0 times; does not count: a prompt",
        ),
    ],
)
def test_a_check_is_one_readable_line(check: Check, text: str) -> None:
    assert check_text(check) == text


def test_every_signal_has_words_and_a_unit() -> None:
    for name in signal_functions():
        assert label(name)
        assert amount(name, 12.5)[0].isdigit()
        assert amount(name, None) == "unknown"
