from __future__ import annotations

import pytest
from soak_growth import GROWTH_BYTES, growth

HELD = {"fds": 18, "threads": 4, "rss": 40 << 20, "objects": 40_000}


@pytest.mark.parametrize(
    ("changes", "grew"),
    [
        ({}, []),
        ({"fds": 12, "threads": 3, "rss": 0, "objects": 0}, []),
        ({"fds": 20}, []),
        ({"fds": 21}, ["fds"]),
        ({"threads": 5}, ["threads"]),
        ({"rss": HELD["rss"] + GROWTH_BYTES}, []),
        ({"rss": HELD["rss"] + GROWTH_BYTES + 1}, ["rss"]),
        ({"objects": 40_800}, []),
        ({"objects": 40_801}, ["objects"]),
    ],
)
def test_what_grew_is_named(changes: dict[str, int], grew: list[str]) -> None:
    assert [sentence.partition(":")[0] for sentence in growth(HELD, {**HELD, **changes})] == grew


def test_objects_are_left_out_where_nobody_counted_them() -> None:
    counted = {what: value for what, value in HELD.items() if what != "objects"}
    assert growth(counted, counted) == []
