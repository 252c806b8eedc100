from __future__ import annotations

from pathlib import Path

from moetuned.daemon.heat_record import HeatRecord
from moetuned.host.model_files import read_model


def test_at_first_nothing_is_known_and_nothing_has_happened(small_model: Path) -> None:
    model = read_model(str(small_model))
    assert model.experts is not None
    record = HeatRecord(model, model.experts)
    assert (record.state, record.kept, record.pages, record.opened) == (None, None, None, False)
    assert (record.healthy, record.answered, record.warmed, record.paged_out) == (True, False, False, False)
