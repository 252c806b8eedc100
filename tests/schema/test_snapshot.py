"""What leaves the process as JSON: everything is in it, also what is unknown, and all of it reads back."""

from __future__ import annotations

import inspect
from types import ModuleType

import msgspec
import pytest

from moetuned.schema import action, event, model, sample, signals, snapshot, tunable, verdict
from moetuned.schema.event import Event, EventName
from moetuned.schema.model import ModelLayout
from moetuned.schema.snapshot import BackendView, MemoryView, SelfView, Snapshot, TunableView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason, Verdict

REASON = Reason("paging", "refault_ratio", 0.9, 0.5, 12.0, "refaults 455 MB/s of 457 MB/s read for 12 s")
EMPTY = Snapshot(
    status=1,
    wall_seconds=1_800_000_000.0,
    at_seconds=100.0,
    mode="observe",
    profile="observe",
    config=None,
    daemon=SelfView(pid=1, version="0", started_wall_seconds=1_799_999_000.0),
)
FULL = msgspec.structs.replace(
    EMPTY,
    backends=(
        BackendView(
            name="glm",
            kind="llama-server",
            verdict=Verdict("glm", 100.0, Phase.DECODE, Paging.THRASHING, MemoryState.OK, (REASON,), 1.0, 2.0, 3.0),
            sentence="thrashes",
            layout=ModelLayout(60, 128, 8, 1 << 20, 47 << 30, 3 << 30, 2 << 30),
            signals={"tokens_per_second": 0.9, "read_amplification": None},
            memory=MemoryView("cgroup", 32 << 30, unknown=None),
            would_do=("restart it",),
        ),
    ),
    tuning=(TunableView("vm.dirty_ratio", "drifted", "10", "20"),),
    events=(Event("1-1", EventName.THRASH_BEGIN, 1_800_000_000.0, 100.0, "glm", "glm thrashes", (REASON,)),),
    notes=("a note",),
)


def structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    found = (kind for _, kind in inspect.getmembers(module, inspect.isclass))
    return [kind for kind in found if issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__]


@pytest.mark.parametrize("value", [EMPTY, FULL], ids=["nothing known", "all known"])
def test_a_snapshot_reads_back_as_it_was(value: Snapshot) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=Snapshot) == value


@pytest.mark.parametrize("value", [EMPTY, FULL], ids=["nothing known", "all known"])
def test_nothing_is_left_out_of_the_json_because_it_is_unknown(value: Snapshot) -> None:
    def check(kind: object, found: object) -> None:
        if isinstance(kind, msgspec.Struct):
            assert isinstance(found, dict)
            assert set(found) >= set(kind.__struct_fields__), type(kind).__name__
            for field in kind.__struct_fields__:
                check(getattr(kind, field), found[field])
        elif isinstance(kind, tuple):
            assert isinstance(found, list)
            for one, its in zip(kind, found, strict=True):
                check(one, its)

    check(value, msgspec.json.decode(msgspec.json.encode(value)))


def test_an_older_reader_is_not_upset_by_a_new_field() -> None:
    raw = msgspec.json.decode(msgspec.json.encode(FULL))
    raw["a_new_field"] = 1
    raw["backends"][0]["another"] = {"x": None}
    assert msgspec.convert(raw, Snapshot) == FULL


def test_a_newer_reader_is_not_upset_by_a_missing_optional_field() -> None:
    raw = msgspec.json.decode(msgspec.json.encode(EMPTY))
    for field in ("machine", "backends", "tuning", "events", "notes"):
        del raw[field]
    assert msgspec.convert(raw, Snapshot) == EMPTY


@pytest.mark.parametrize(
    "module", [action, event, model, sample, signals, snapshot, tunable, verdict], ids=lambda m: m.__name__
)
def test_values_that_pass_between_rooms_cannot_be_changed(module: ModuleType) -> None:
    kinds = structs(module)
    assert kinds
    for kind in kinds:
        assert kind.__struct_config__.frozen, f"{kind.__name__} is not frozen"


@pytest.mark.parametrize("module", [model, sample, signals, snapshot], ids=lambda m: m.__name__)
def test_a_number_says_its_unit_in_its_name(module: ModuleType) -> None:
    """A float has a unit; what has none is a time stamp of a trace line, whose names are the file format's."""
    without_unit = {
        ("RawSample", "t"),
        ("RawSample", "wall"),
        ("BackendHttp", "requests_processing"),
        ("BackendHttp", "requests_deferred"),
    }
    for kind in structs(module):
        for field in msgspec.structs.fields(kind):
            if field.type in (float, float | None) and (kind.__name__, field.name) not in without_unit:
                units = set(field.name.split("_")) & {"seconds", "ratio", "bytes", "second", "total", "us"}
                assert units, f"{kind.__name__}.{field.name}"
