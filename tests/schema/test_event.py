"""Names of events: they are what a config, a hook's environment and a trace's truth are written with."""

from __future__ import annotations

import re

import msgspec
import pytest

from moetuned.schema.event import (
    CLOSES,
    ENDS,
    KIND_OF,
    Event,
    EventName,
    begun_by,
    has_end,
    is_kind_of,
    is_wanted,
    may_close,
)
from moetuned.schema.verdict import Reason


def test_the_names_are_the_published_ones() -> None:
    assert {name.value for name in EventName} == {
        "thrash_begin",
        "thrash_end",
        "memory_near_limit",
        "memory_recovered",
        "backend_down",
        "backend_oom_killed",
        "backend_hung",
        "backend_model_missing",
        "backend_port_taken",
        "backend_crash_loop",
        "backend_recovered",
        "backend_restarting",
        "backend_restarted",
        "backend_not_restarted",
        "backend_start_changed",
        "relief_exhausted",
        "cache_evicted",
        "tuning_drifted",
        "device_unsuitable",
        "test",
    }


@pytest.mark.parametrize("name", EventName)
def test_a_name_is_unique_and_can_stand_in_an_environment_variable(name: EventName) -> None:
    assert [other for other in EventName.__members__.values() if other.value == name.value] == [name]
    assert EventName.__members__[name.value.upper()] is name, "no two names for one event"
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)


def test_who_wants_an_event_gets_its_kinds() -> None:
    assert is_wanted(EventName.BACKEND_OOM_KILLED, [EventName.BACKEND_DOWN])
    assert is_wanted(EventName.BACKEND_OOM_KILLED, [EventName.BACKEND_OOM_KILLED])
    assert not is_wanted(EventName.BACKEND_DOWN, [EventName.BACKEND_OOM_KILLED]), "not the other way round"
    assert not is_wanted(EventName.BACKEND_RECOVERED, [EventName.BACKEND_DOWN])
    assert not is_wanted(EventName.BACKEND_START_CHANGED, [EventName.BACKEND_DOWN])
    assert all(is_wanted(name, []) for name in EventName), "nothing named: all"


def test_kinds_are_of_one_level() -> None:
    assert not set(KIND_OF) & set(KIND_OF.values())
    assert all(is_kind_of(name, name) for name in EventName)


def test_an_end_tells_of_what_it_ends_and_everything_else_of_itself() -> None:
    assert begun_by(EventName.MEMORY_RECOVERED) == (EventName.MEMORY_NEAR_LIMIT, EventName.RELIEF_EXHAUSTED)
    assert begun_by(EventName.BACKEND_OOM_KILLED) == begun_by(EventName.BACKEND_RECOVERED) == (EventName.BACKEND_DOWN,)
    assert begun_by(EventName.TUNING_DRIFTED) == (EventName.TUNING_DRIFTED,)


def test_what_has_an_end_and_what_has_none() -> None:
    assert {name for name in EventName if has_end(name)} == {
        EventName.THRASH_BEGIN, EventName.MEMORY_NEAR_LIMIT, EventName.RELIEF_EXHAUSTED, EventName.BACKEND_RESTARTING,
        EventName.BACKEND_DOWN, *KIND_OF,
    }  # fmt: skip


def test_an_end_ends_no_kind_and_no_end() -> None:
    begun = [name for names in ENDS.values() for name in names]
    assert len(set(begun)) == len(begun)
    assert not set(begun) & (set(KIND_OF) | set(ENDS))


def test_what_tells_how_a_restart_failed_is_no_end_and_closes_only_what_it_names() -> None:
    assert not set(CLOSES) & {*ENDS, *KIND_OF}
    assert all(has_end(begun) for names in CLOSES.values() for begun in names)
    assert (
        may_close(EventName.BACKEND_PORT_TAKEN) == may_close(EventName.BACKEND_DOWN) == (EventName.BACKEND_RESTARTING,)
    )
    told = Event("2", EventName.BACKEND_PORT_TAKEN, 1.0, 1.0, "glm", "x")
    assert told.closes == ()
    assert msgspec.structs.replace(told, ended=("1",)).closes == (EventName.BACKEND_RESTARTING,)
    assert Event("2", EventName.BACKEND_RECOVERED, 1.0, 1.0, "glm", "x", ended=("1",)).closes == ()


def test_an_event_can_always_be_written() -> None:
    """Whatever the files and processes that it names are called: else a hook would not run, and the daemon would end."""
    reason = Reason("memory", "anon", 1.0, 2.0, 3.0, "grown by \udcfe")
    event = Event("1", EventName.BACKEND_DOWN, 1.0, 1.0, "b\ud800", "part a\udcff.gguf is missing", (reason,))
    assert (event.backend, event.message) == ("b\ufffd", "part a\ufffd.gguf is missing")
    assert event.reasons == (msgspec.structs.replace(reason, text="grown by \ufffd"),)
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event
    again = msgspec.structs.replace(event, message="\udc80")
    assert again.message == "\ufffd"
