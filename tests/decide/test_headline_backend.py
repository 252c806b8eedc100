"""What is told of a backend first, and the words for all that is no thrash."""

from __future__ import annotations

from typing import Any

import pytest
from headline_scenes import GIB, NOW, view

from moetuned.decide.headline_backend import STARVED as STARVED_SIGNAL
from moetuned.decide.headline_backend import backend_headline
from moetuned.decide.paging_starved import SIGNAL
from moetuned.schema.event import Event, EventName
from moetuned.schema.headline import Headline, Severity, Situation
from moetuned.schema.neighbour import Neighbour
from moetuned.schema.snapshot import BackendView, MemoryView, PrefillView, ResidencyView
from moetuned.schema.supervision import SupervisionView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason

HUNG = Reason("phase", "hung", 65.0, 60.0, 65.0, "hung")
STARVED = Reason("paging", "cpu_ratio", 0.3, 0.9, 9.0, "it waits for the processor")
EVICTED = Reason("paging", "resident_ratio", 0.88, 0.25, 2.0, "88 % left")
NEARLY_FULL = MemoryView("machine", 32 * GIB, 30 * GIB, GIB, 2 * GIB, seconds_to_limit=20.0)


def told(one: BackendView, *events: Event, mode: str = "act") -> Headline:
    return backend_headline(one, events, NOW, mode)


def event(name: EventName, *reasons: Reason, backend: str = "glm") -> Event:
    return Event("1", name, NOW, NOW, backend, "", reasons)


@pytest.mark.parametrize(
    ("more", "severity", "situation"),
    [
        ({"phase": Phase.ABSENT}, Severity.CRITICAL, Situation.DOWN),
        ({"phase": Phase.ABSENT, "state": "unknown", "pid": 7}, Severity.UNKNOWN, Situation.UNSEEN),
        ({"phase": Phase.ABSENT, "state": "unknown", "pid": None}, Severity.CRITICAL, Situation.DOWN),
        ({"phase": Phase.ABSENT, "state": "restarting"}, Severity.WARNING, Situation.TRANSITION),
        ({"phase": Phase.IDLE, "state": "broken"}, Severity.CRITICAL, Situation.DOWN),
        ({"phase": Phase.IDLE, "state": "paused"}, Severity.WARNING, Situation.PAUSED),
        ({"phase": Phase.DECODE, "reasons": (HUNG,), "paging": Paging.THRASHING}, Severity.CRITICAL, Situation.HUNG),
        ({"phase": Phase.DECODE, "paging": Paging.THRASHING, "memory": MemoryState.CRITICAL}, Severity.CRITICAL, Situation.AT_LIMIT),
        ({"phase": Phase.DECODE, "paging": Paging.THRASHING, "memory": MemoryState.NEAR_LIMIT}, Severity.CRITICAL, Situation.THRASHING),
        ({"phase": Phase.DECODE, "paging": Paging.STEADY, "memory": MemoryState.NEAR_LIMIT}, Severity.WARNING, Situation.NEAR_LIMIT),
        ({"phase": Phase.DECODE, "paging": Paging.STEADY, "reasons": (STARVED,)}, Severity.WARNING, Situation.STARVED),
        ({"phase": Phase.IDLE, "paging": Paging.COLD, "reasons": (EVICTED,)}, Severity.WARNING, Situation.EVICTED),
        ({"phase": Phase.IDLE, "paging": Paging.COLD}, Severity.OK, Situation.COLD),
        ({"phase": Phase.LOADING, "paging": Paging.COLD}, Severity.WARNING, Situation.LOADING),
        ({"phase": Phase.UNKNOWN, "paging": Paging.STEADY}, Severity.UNKNOWN, Situation.UNSEEN),
        ({"phase": Phase.DECODE, "paging": Paging.WARMING}, Severity.OK, Situation.WARMING),
        ({"phase": Phase.DECODE, "paging": Paging.STREAMING}, Severity.OK, Situation.STREAMING),
        ({"phase": Phase.IDLE, "paging": Paging.STEADY}, Severity.OK, Situation.WELL),
        ({"phase": Phase.IDLE, "paging": Paging.UNKNOWN}, Severity.OK, Situation.UNTOLD),
        ({"phase": Phase.PREFILL, "paging": Paging.STREAMING, "prefill": PrefillView(10, 20)}, Severity.OK, Situation.READING_PROMPT),
    ],
)  # fmt: skip
def test_what_goes_first(more: dict[str, Any], severity: Severity, situation: Situation) -> None:
    axes = (more.pop("phase"), more.pop("paging", Paging.UNKNOWN), more.pop("memory", MemoryState.OK))
    one = told(view("glm", *axes, *more.pop("reasons", ()), **more))
    assert (one.severity, one.situation, one.backend) == (severity, situation, "glm")


def test_the_kernel_ended_it() -> None:
    down = view("glm", Phase.ABSENT)
    killed = told(down, event(EventName.BACKEND_OOM_KILLED))
    assert "the kernel ended it, because its memory was full" in killed.text
    assert "moetunectl estimate /models/glm.gguf" in killed.advice
    for later in (EventName.BACKEND_RECOVERED, EventName.BACKEND_RESTARTED):
        assert "kernel" not in told(down, event(EventName.BACKEND_OOM_KILLED), event(later)).text
    assert "kernel" not in told(down, event(EventName.BACKEND_OOM_KILLED), event(EventName.BACKEND_DOWN)).text
    assert "kernel" not in told(down, event(EventName.BACKEND_OOM_KILLED, backend="other")).text


def test_down_says_who_starts_it() -> None:
    assert "Start it" in told(view("glm", Phase.ABSENT)).advice
    own = view("glm", Phase.ABSENT, supervised=True, supervision=SupervisionView(log="/var/log/glm.log"))
    assert told(own).advice == "See /var/log/glm.log, then start it: moetunectl backend restart glm"
    waiting = view("glm", Phase.ABSENT, supervised=True, state="waiting")
    assert told(waiting).advice == "If it does not come up, see its log"


@pytest.mark.parametrize(
    ("kind", "supervised", "mode", "words"),
    [
        ("loading", True, "act", "--no-repack"),
        ("prompt_cache", True, "act", "moetuned makes room by itself"),
        ("prompt_cache", True, "observe", "--cache-ram"),
        ("leak", True, "observe", "moetunectl backend restart glm"),
        ("leak", False, "act", "Close what you do not need"),
        ("neighbour", False, "act", "Close that program"),
        (None, False, "act", "moetunectl relief plan glm"),
    ],
)
def test_room_is_made_where_it_went(kind: str | None, supervised: bool, mode: str, words: str) -> None:
    memory = MemoryView("cgroup", 32 * GIB, 30 * GIB, GIB, 2 * GIB, growth_kind=kind)
    one = told(
        view("glm", Phase.IDLE, Paging.STEADY, MemoryState.NEAR_LIMIT, memory=memory, supervised=supervised), mode=mode
    )
    assert words in one.advice
    assert "2.0 GiB of its limit of 32.0 GiB left" in one.text


def test_near_its_limit() -> None:
    firefox = Neighbour("firefox", "grew", 6 * GIB, 600.0, 7, None, "firefox (pid 7) grew 6.0 GiB since 14:02")
    one = told(
        view("glm", Phase.IDLE, Paging.STEADY, MemoryState.NEAR_LIMIT, memory=NEARLY_FULL, neighbours=(firefox,))
    )
    assert (
        "its memory is nearly full: 2.0 GiB of 32.0 GiB left, full in about 20 s at this pace; firefox (pid 7) grew"
        in one.text
    )
    assert one.advice.startswith("Close it, or")
    far = MemoryView("machine", 32 * GIB, 20 * GIB, GIB, 12 * GIB, seconds_to_limit=20.0)
    assert "filling up fast" in told(view("glm", Phase.IDLE, Paging.STEADY, MemoryState.NEAR_LIMIT, memory=far)).text


def test_who_pushed_it_out() -> None:
    idle = view("glm", Phase.IDLE, Paging.COLD, MemoryState.OK, EVICTED)
    assert "88 % of its model was pushed out of memory" in told(idle).text
    rsync = Neighbour("rsync", "read", 42 * GIB, 300.0, 812, None, "rsync (pid 812) read 42.0 GiB in the last 5 min")
    seen = view("glm", Phase.IDLE, Paging.COLD, MemoryState.OK, EVICTED, neighbours=(rsync,))
    assert rsync.text in told(seen).text
    named = Reason("neighbours", "neighbour_read_bytes", 1.0, None, 1.0, rsync.text)
    assert rsync.text in told(idle, event(EventName.CACHE_EVICTED, named)).text
    assert told(idle).advice == "Warm it now: moetunectl warm /models/glm.gguf"


def test_residency_of_before_it_had_loaded_is_not_told() -> None:
    for age, known in ((50.0, False), (30.0, True)):
        cold = view("glm", Phase.IDLE, Paging.COLD, residency=ResidencyView(10 * GIB, age_seconds=age))
        assert ("20 % of it is in memory" in told(cold).text) is known


def test_streaming_and_well_say_the_speed() -> None:
    signals = {"tokens_per_second": 2.1, "process_read_bytes_per_second": 3.1e8}
    streams = told(view("glm", Phase.DECODE, Paging.STREAMING, signals=signals))
    assert "all is well: answering at 2.1 tokens/s." in streams.text
    assert "(310 MB/s)" in streams.text
    assert streams.advice.startswith("Nothing to do.")
    assert "answering at 2.1 tokens/s" in told(view("glm", Phase.DECODE, Paging.STEADY, signals=signals)).text


def test_one_that_cannot_be_asked() -> None:
    why = Reason("phase", "http", None, None, None, "it no longer listens")
    asked = told(view("glm", Phase.UNKNOWN, Paging.UNKNOWN, MemoryState.OK, why, url="http://127.0.0.1:8080"))
    assert "it runs, but does not say what it does (it no longer listens)" in asked.text
    assert asked.advice == "See whether it answers: curl http://127.0.0.1:8080/health"
    assert "url:" in told(view("glm", Phase.UNKNOWN)).advice


def test_paused_says_how_to_let_it_go_on() -> None:
    paused = Reason("phase", "paused", None, None, None, "stopped")
    assert (
        told(view("glm", Phase.IDLE, Paging.STEADY, MemoryState.OK, paused, pid=42)).advice
        == "To let it go on: kill -CONT 42"
    )
    own = view("glm", Phase.IDLE, Paging.STEADY, MemoryState.OK, paused, supervised=True)
    assert told(own).advice == "To let it go on: moetunectl backend resume glm"


def test_it_is_the_signal_of_who_tells_it() -> None:
    assert STARVED_SIGNAL == SIGNAL


def test_hung_says_where_its_log_is() -> None:
    own = view(
        "glm", Phase.DECODE, Paging.STEADY, MemoryState.OK, HUNG, supervised=True, supervision=SupervisionView(log="/l")
    )
    assert told(own).advice == "See /l, then restart it: moetunectl backend restart glm --now"
    assert told(view("glm", Phase.DECODE, Paging.STEADY, MemoryState.OK, HUNG)).advice.endswith("start it again.")
