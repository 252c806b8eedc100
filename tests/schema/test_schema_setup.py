"""The record is JSON that an older or newer setup reads; what a candidate is decides whether it may be restarted."""

from __future__ import annotations

import msgspec
import pytest

from moetuned.schema.setup import Candidate, SetupRecord, Way


def test_a_record_of_another_version_is_read() -> None:
    assert msgspec.json.decode(b'{"files": ["/a"], "later": 1}', type=SetupRecord) == SetupRecord(("/a",))


@pytest.mark.parametrize("way", Way)
def test_what_may_be_restarted(way: Way) -> None:
    assert Candidate("glm", way, "").can_be_restarted == (way in (Way.UNIT, Way.CREATED, Way.CHILD))
