from __future__ import annotations

import json
from pathlib import Path

import msgspec

from moetuned.schema.headline import Headline, Severity, Situation, StatusReport
from moetuned.schema.snapshot import SelfView, Snapshot

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "reference" / "status.schema.json"


def test_a_line_has_the_name_and_both_halves() -> None:
    assert Headline(Severity.OK, Situation.WELL, "well.", "Rest.", "glm").line == "glm: well. Rest."
    assert Headline(Severity.OK, Situation.WELL, "well.").line == "well."
    assert [situation for situation in Situation if Headline(Severity.OK, situation, "").is_stale] == [Situation.STALE]


def test_a_report_is_a_snapshot_and_more() -> None:
    snapshot = Snapshot(1, 1.0, 1.0, "act", "observe", None, SelfView(1, "0.1.0", 0.0))
    fields = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    report = StatusReport(**fields, headlines=(Headline(Severity.OK, Situation.WELL, "well."),))
    encoded = msgspec.json.encode(report)
    assert msgspec.json.decode(encoded, type=Snapshot) == snapshot
    assert msgspec.json.decode(encoded, type=StatusReport) == report


def test_the_schema_holds_everything_that_a_program_may_ask_for() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    assert set(schema["StatusReport"]["properties"]) == set(StatusReport.__struct_fields__)
    assert set(schema["Situation"]["enum"]) == {situation.value for situation in Situation}
