from __future__ import annotations

from moetuned.schema.event import ENDS, KIND_OF, EventName
from moetuned.schema.severity import SEVERITY, Severity


def test_every_event_has_one() -> None:
    assert set(SEVERITY) == set(EventName)


def test_kinds_are_as_bad_as_what_they_are_kinds_of() -> None:
    assert {name: SEVERITY[name] for name in KIND_OF} == {name: SEVERITY[whole] for name, whole in KIND_OF.items()}


def test_ends_are_good_news() -> None:
    assert {SEVERITY[name] for name in ENDS} == {Severity.INFO}
