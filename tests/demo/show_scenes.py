"""Snapshots for the demo's tests, and a daemon that shows what it is told to."""

from __future__ import annotations

from moetuned.schema.event import Event, EventName
from moetuned.schema.snapshot import BackendView, ContextView, SelfView, Snapshot, WarmView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict


def snapshot(
    phase: Phase = Phase.DECODE,
    paging: Paging = Paging.STEADY,
    memory: MemoryState = MemoryState.OK,
    *,
    name: str = "demo",
    pid: int | None = None,
    warm: str = "done",
    events: tuple[Event, ...] = (),
) -> Snapshot:
    backend = BackendView(
        name=name,
        kind="simulator",
        verdict=Verdict(name, 1.0, phase, paging, memory),
        sentence=f"is {paging}",
        pid=pid,
        context=ContextView(now=4096),
        warm=WarmView(state=warm),
    )
    return Snapshot(
        status=1,
        wall_seconds=1000.0,
        at_seconds=1.0,
        mode="act",
        profile="observe",
        config=None,
        daemon=SelfView(pid=1, version="0", started_wall_seconds=0.0),
        backends=(backend,),
        events=events,
    )


def event(name: EventName, wall_seconds: float) -> Event:
    return Event(f"e-{wall_seconds:g}", name, wall_seconds, 1.0, "demo", "told")


class FakeDaemon:
    """Shows `snapshots` one after the other, the last for ever; `kills` are the looks at which it had to be started again."""

    def __init__(self, *snapshots: Snapshot | None, kills: tuple[int, ...] = ()) -> None:
        self.snapshots = list(snapshots)
        self.kills = kills
        self.looks = 0

    def keep_alive(self) -> bool:
        self.looks += 1
        return self.looks in self.kills

    def snapshot(self) -> Snapshot | None:
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]


class FakeTime:
    """`time` whose clock only sleeping moves."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
