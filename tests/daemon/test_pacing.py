"""What makes the next look come soon."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from moetuned.daemon.pacing import does_nothing, seen
from moetuned.daemon.watched import Watched
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.signals import Signals
from moetuned.schema.snapshot import ProtectView, WarmView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

QUIET = {"cpu_ratio": 0.0, "process_read_bytes_per_second": 0.0, "headroom_bytes": 5e9}


def idle(name: str = "glm", **signals: float | None) -> Watched:
    watched = Watched(name, None, 0.0)
    watched.process = ProcessIdentity(1, 1)
    watched.verdict = Verdict(name, 0.0, phase=Phase.IDLE, paging=Paging.STEADY, memory=MemoryState.OK)
    watched.signals = Signals(name, 0.0, 1.0, {**QUIET, **signals})
    return watched


def busy(*backends: Watched) -> str | None:
    return seen(backends, triggered=True).busy


def test_idle_ones_ask_for_nothing() -> None:
    found = seen([idle("a"), idle("b", headroom_bytes=3e9)], triggered=True)
    assert (found.busy, found.headroom_bytes, found.backends, found.triggered) == (None, 3e9, True, True)


def test_no_backend_asks_for_nothing() -> None:
    absent = Watched("glm", None, 0.0)
    assert seen([absent], triggered=False).backends is False
    assert busy(absent) is None


def test_headroom_is_known_only_where_it_is_of_all() -> None:
    assert seen([idle("a"), idle("b", headroom_bytes=None)], triggered=True).headroom_bytes is None


@pytest.mark.parametrize(
    "changes",
    [{"phase": phase} for phase in Phase if phase is not Phase.IDLE]
    + [{"memory": memory} for memory in MemoryState if memory is not MemoryState.OK]
    + [{"paging": Paging.THRASHING}],
)
def test_a_verdict_that_asks_for_looks(changes: dict[str, str]) -> None:
    watched = idle()
    watched.verdict = msgspec.structs.replace(watched.verdict, **changes)
    assert busy(idle("other"), watched) is not None


@pytest.mark.parametrize(
    "signals",
    [
        {"cpu_ratio": 0.5},
        {"cpu_ratio": None},
        {"process_read_bytes_per_second": 1e6},
        {"process_read_bytes_per_second": None},
    ],
)
def test_what_uses_something_or_may(signals: dict[str, float | None]) -> None:
    assert busy(idle(**signals)) is not None
    assert busy(idle()) is None


def test_what_moetuned_itself_does() -> None:
    for change in (
        {"warm": WarmView("running")}, {"warm_wanted": "asked"}, {"protect": ProtectView("locking")}, {"would_do": ("x",)},
        {"signals": None}, {"process": None, "supervisor": SimpleNamespace(held=False, draining=False)},
    ):  # fmt: skip
        watched = idle()
        for name, value in change.items():
            setattr(watched, name, value)
        assert busy(watched) is not None, change
    assert seen([idle()], triggered=True, waiting="an event waits").busy == "an event waits"


def test_what_cannot_wait_for_the_next_look() -> None:
    watched = idle()
    assert seen([watched], triggered=True).quick is None
    watched.supervisor = SimpleNamespace(held=True, draining=False)  # type: ignore[assignment]
    assert "second look" in (seen([watched], triggered=True).quick or "")
    watched.supervisor = SimpleNamespace(held=False, draining=True)  # type: ignore[assignment]
    assert "restart" in (seen([watched], triggered=True).quick or "")
    watched.supervisor = None
    watched.verdict = msgspec.structs.replace(watched.verdict, memory=MemoryState.CRITICAL)
    watched.relief = msgspec.structs.replace(watched.relief, looks=1)
    assert "critical" in (seen([watched], triggered=True).quick or "")
    watched.relief = msgspec.structs.replace(watched.relief, looks=2)
    assert seen([watched], triggered=True).quick is None


def test_doing_nothing_is_known_of_nobody_who_cannot_be_seen() -> None:
    watched = idle()
    assert does_nothing(watched)
    watched.signals = None
    assert not does_nothing(watched)
