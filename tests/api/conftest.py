from __future__ import annotations

import pytest
from api_examples import example_snapshot

from moetuned.schema.snapshot import Snapshot


@pytest.fixture
def snapshot() -> Snapshot:
    return example_snapshot()
