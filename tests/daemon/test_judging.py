"""One look: a machine's files in, verdicts and what follows from them out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers, no_alerts

from moetuned.daemon import hanging, warm_baseline
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.conversations import Conversations
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.judging import Judge
from moetuned.daemon.loop import Loop
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.settings import settings_of
from moetuned.daemon.watched import Watched
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.left_open import SURE_SECONDS
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Config, Context, Mode, Relief
from moetuned.schema.event import EventName
from moetuned.schema.snapshot import WarmView
from moetuned.schema.verdict import MemoryState, Phase
from moetuned.state.backend_record import WarmBaseline

GIB = 1 << 30
HTTP = {"/health": '{"status":"ok"}', "/slots": '[{"id":0,"n_ctx":8192,"is_processing":false}]', "/metrics": ""}
STAT = "10 (server) S 1 10 10 0 -1 4194304 1 0 0 0 5 5 0 0 20 0 1 0 100 1000 100" + " 0" * 30
MEMINFO = "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 12582912 kB\nCached: 4194304 kB\nAnonPages: 1048576 kB\nShmem: 0 kB\n"


class Owner:
    """A supervisor that only takes notes."""

    def __init__(self) -> None:
        self.process = object()
        self.state = Supervision("glm", LaunchPlan(8192, 64), stage=Stage.LOADING)
        self.adopted_age_seconds: float | None = None
        self.load_seconds: float | None = None
        self.warm_owed = False
        self.relief_restarts: tuple[float, ...] = ()
        self.warm: WarmBaseline | None = None
        self.restarts: list[LaunchPlan] = []
        self.placeholders = "{context}{prompt_cache_mib}"
        self.hangs = 0

    @property
    def ends_hung(self) -> bool:
        return self.state.stage is Stage.READY

    def hung(self) -> None:
        self.hangs += 1
        self.state = msgspec.structs.replace(self.state, stage=Stage.STOPPING)

    def knows(self, placeholder: str) -> bool:
        return self.sets(placeholder)

    def sets(self, placeholder: str) -> bool:
        return placeholder in self.placeholders

    def healthy(self) -> None:
        self.state = msgspec.structs.replace(self.state, stage=Stage.READY)

    def keep_warm(self, warm: WarmBaseline) -> None:
        self.warm = warm

    def note_warm_owed(self, owed: bool) -> None:
        self.warm_owed = owed

    paused_wall_seconds: float | None = None
    conversations: Conversations | None = None
    draining = held = pausable = False
    waits_because = check = None
    before_restart: str | None = None

    @property
    def restarting(self) -> bool:
        return self.state.stage is Stage.STOPPING

    def hear(self, busy: int | None, answered_at: float | None) -> None:
        self.heard = (busy, answered_at)

    def restart(self, plan: LaunchPlan, why: str, *, seconds: float, end_seconds: float | None) -> None:
        assert why
        self.restarts.append(plan)
        self.state = msgspec.structs.replace(self.state, stage=Stage.STOPPING, next_plan=plan)


class Rig:
    """A machine as a directory of files: one backend, pid 10, in a v2 cgroup of 2 GiB."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.workers = HeldWorkers()
        self.events = EventLog(1.0)
        self.care = ModelCare(self.loop, self.clock, self.workers)
        self.judge = Judge(self.clock, self.care, Announcer(self.events, no_alerts(), self.clock), str(root))
        self.settings = settings_of(Config(relief=Relief(mode=Mode.ACT)))
        self.watched = Watched("glm", Backend("glm", context=Context(preferred=8192, minimum=1024)), self.clock.now)
        self.owner = Owner()
        self.watched.supervisor = self.owner  # type: ignore[assignment]
        self.watched.follow_process(ProcessIdentity(10, 100), self.clock.now)
        self.watched.cgroup = MemoryCgroup("/cg", 2)
        self.watched.description = BackendDescription()
        self.care.learn_model(self.watched, str(model))
        self.workers.finish("reading the model", really=True)
        self.write("/proc/meminfo", MEMINFO)
        self.write("/proc/10/stat", STAT)
        self.write("/proc/10/status", "RssAnon: 1024 kB\n")
        self.write("/proc/10/io", "read_bytes: 0\n")
        self.write("/cg/memory.max", f"{2 * GIB}\n")
        self.write("/cg/memory.events", "oom_kill 0\n")
        self.set_anonymous(GIB // 2)

    def write(self, path: str, text: str) -> None:
        file = self.root / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def set_anonymous(self, size: int) -> None:
        self.write("/cg/memory.current", f"{size}\n")
        self.write("/cg/memory.stat", f"anon {size}\nfile 0\nactive_file 0\ninactive_file 0\nshmem 0\n")

    def look(self, seconds: int = 1, *, http: dict[str, str] | None = None, may_restart: bool = True) -> None:
        for _ in range(seconds):
            self.clock.now += 1
            self.watched.http, self.watched.http_at = HTTP if http is None else http, self.clock.now
            self.judge.look([self.watched], self.settings, self.clock.now, may_restart=may_restart)

    def names(self) -> list[EventName]:
        return [event.name for event in self.events.since(None)]


@pytest.fixture
def rig(tmp_path: Path, small_model: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, small_model)
    yield rig
    rig.judge.close()
    rig.loop.close()


def test_a_ready_backend_is_told_to_its_supervisor_and_warmed_once(rig: Rig) -> None:
    rig.look(2, http={"/health": "!503 Loading"})
    assert rig.watched.verdict.phase is Phase.LOADING
    assert rig.owner.state.stage is Stage.LOADING
    rig.look(2)
    assert rig.watched.verdict.phase is Phase.IDLE
    assert rig.owner.state.stage is Stage.READY
    assert rig.watched.warm_wanted == "the backend has loaded"
    assert rig.watched.context_now() == 8192
    rig.watched.warm_wanted = None
    rig.look(3)
    assert rig.watched.warm_wanted is None


def test_one_that_was_taken_over_running_is_not_warmed(rig: Rig) -> None:
    rig.owner.adopted_age_seconds = 500.0
    rig.look(2)
    assert rig.owner.state.stage is Stage.READY
    assert rig.watched.warm_wanted is None


def test_one_that_was_taken_over_before_it_was_warm_is_warmed_once(rig: Rig) -> None:
    rig.owner.adopted_age_seconds, rig.owner.warm_owed = 500.0, True
    rig.look(1)
    assert (
        rig.watched.warm_wanted == "moetuned has not warmed it yet"
    )  # true also of one that the config has just named
    assert rig.owner.warm_owed
    rig.watched.warm_wanted, rig.watched.warm = None, WarmView("done")
    rig.look(2)
    assert rig.watched.warm_wanted is None
    assert not rig.owner.warm_owed


def test_what_is_owed_is_not_done_where_warming_is_off(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, warm_enabled=False)
    rig.owner.adopted_age_seconds, rig.owner.warm_owed = 500.0, True
    rig.look(2)
    assert rig.watched.warm_wanted is None
    assert not rig.owner.warm_owed


def test_one_that_was_taken_over_loading_is_warmed(rig: Rig) -> None:
    rig.owner.adopted_age_seconds = 5.0
    rig.look(1, http={"/health": "!503 Loading"})
    rig.look(1)
    assert rig.watched.warm_wanted is not None


def test_one_on_its_way_out_is_not_ready(rig: Rig) -> None:
    rig.owner.state = msgspec.structs.replace(rig.owner.state, stage=Stage.STOPPING)
    rig.look(2)
    assert rig.watched.ready_at is None


def test_near_its_limit_it_is_restarted_once_with_less(rig: Rig) -> None:
    rig.look(3)
    rig.set_anonymous(2 * GIB - (100 << 20))
    rig.look(20)
    assert rig.watched.verdict.memory is not MemoryState.OK
    assert len(rig.owner.restarts) == 1
    plan = rig.owner.restarts[0]
    assert 1024 <= plan.context_length < 8192
    assert plan.prompt_cache_mib is not None
    assert plan.prompt_cache_mib < 64
    assert EventName.MEMORY_NEAR_LIMIT in rig.names()


def test_the_alert_of_one_that_is_only_watched_says_what_its_owner_can_do(rig: Rig) -> None:
    rig.watched.supervisor, rig.watched.kind = None, "koboldcpp"
    rig.watched.description = BackendDescription(context_length=8192)
    rig.look(3)
    rig.set_anonymous(2 * GIB - (100 << 20))
    rig.look(5)
    (near,) = (event for event in rig.events.since(None) if event.name is EventName.MEMORY_NEAR_LIMIT)
    assert "moetuned does not supervise it; to free memory, start it with --contextsize " in near.message


def test_limits_are_worked_out_only_while_its_model_is_warmed_or_is_to_be(rig: Rig) -> None:
    rig.look(3)
    rig.watched.warm_wanted = None
    rig.look(1)
    assert rig.watched.limits == ()
    rig.watched.warm_wanted = "somebody asked for it"
    rig.look(1)
    assert [one.scope for one in rig.watched.limits] == ["/cg", "machine"]


def test_observing_it_only_says_what_it_would_do(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, act=False)
    rig.look(3)
    rig.set_anonymous(2 * GIB - (100 << 20))
    rig.look(20)
    assert rig.owner.restarts == []
    assert "context 8192 ->" in rig.watched.would_do[0]


def test_while_stopping_nothing_is_restarted(rig: Rig) -> None:
    rig.look(3)
    rig.set_anonymous(2 * GIB - (100 << 20))
    rig.look(20, may_restart=False)
    assert rig.owner.restarts == []


def test_a_command_without_placeholders_is_not_restarted_for_nothing(rig: Rig) -> None:
    rig.owner.placeholders = ""
    rig.look(3)
    rig.set_anonymous(2 * GIB - (100 << 20))
    rig.look(20)
    assert rig.owner.restarts == []
    assert rig.names().count(EventName.RELIEF_EXHAUSTED) == 1


def test_unknown_memory_does_nothing(rig: Rig) -> None:
    for name in ("/cg/memory.max", "/proc/meminfo"):
        (rig.root / name.removeprefix("/")).unlink()
    rig.set_anonymous(2 * GIB - (100 << 20))
    rig.look(20)
    assert rig.watched.memory.limit_bytes is None
    assert rig.owner.restarts == []
    assert rig.watched.would_do == ()


def test_a_supervised_backend_that_ends_is_left_to_its_supervisor_to_tell(rig: Rig) -> None:
    rig.look(3)
    for name in ("stat", "status", "io"):
        (rig.root / "proc/10" / name).unlink()
    rig.watched.forget_process(rig.clock.now)
    rig.look(3)
    assert rig.watched.verdict.phase is Phase.ABSENT
    assert rig.names() == []
    rig.watched.supervisor = None
    rig.watched.detector = msgspec.structs.replace(
        rig.watched.detector, phase=msgspec.structs.replace(rig.watched.detector.phase, down=False)
    )
    rig.look(1)
    assert rig.names() == [EventName.BACKEND_DOWN]


def vanish(rig: Rig) -> None:
    rig.write("/proc/10/stat", STAT.replace(") S", ") Z"))
    rig.look(1)
    for name in ("stat", "status", "io"):
        (rig.root / "proc/10" / name).unlink()
    rig.watched.forget_process(rig.clock.now)
    rig.look(3)
    assert rig.watched.verdict.phase is Phase.ABSENT


def return_again(rig: Rig) -> None:
    for name, text in (("stat", STAT), ("status", "RssAnon: 1024 kB\n"), ("io", "read_bytes: 0\n")):
        rig.write(f"/proc/10/{name}", text)
    rig.watched.follow_process(ProcessIdentity(10, 100), rig.clock.now)
    rig.look(3)


@pytest.mark.parametrize(
    ("configured", "oom_killed", "expected"),
    [
        (True, False, [EventName.BACKEND_DOWN, EventName.BACKEND_RECOVERED]),
        (False, False, []),
        (False, True, [EventName.BACKEND_OOM_KILLED, EventName.BACKEND_RECOVERED]),
    ],
)
def test_one_nobody_configured_comes_and_goes_without_an_event(
    rig: Rig, configured: bool, oom_killed: bool, expected: list[EventName]
) -> None:
    rig.watched.supervisor = None
    if not configured:
        rig.watched.config = None
    rig.look(3)
    if oom_killed:
        rig.write("/cg/memory.events", "oom_kill 1\n")
    vanish(rig)
    rig.look(2)
    assert rig.names() == expected[:1]
    return_again(rig)
    assert rig.names() == expected


BUSY = {
    **HTTP,
    "/slots": '[{"id": 0, "id_task": 1, "is_processing": true, "n_prompt_tokens": 9, "next_token": {"n_decoded": 0}}]',
}


@pytest.mark.parametrize("supervised", [True, False])
def test_one_that_hangs_is_told_also_of_a_supervised_one(rig: Rig, supervised: bool) -> None:
    rig.look(2)
    if not supervised:
        rig.watched.supervisor = rig.watched.config = None
    rig.watched.warm_kept_at = 1e9  # the baseline is no matter here
    hold = round(DetectorSettings().hung_hold_seconds)
    rig.look(hold, http=BUSY)
    assert rig.names() == []
    rig.look(3, http=BUSY)
    assert rig.names() == [EventName.BACKEND_HUNG]
    assert "restart it. moetuned does" in rig.events.since(None)[0].message
    rig.owner.state = msgspec.structs.replace(rig.owner.state, down=True)  # Its manager refused to restart it.
    rig.write("/proc/10/io", "read_bytes: 4096\n")
    rig.look(2, http=BUSY)
    assert rig.names() == [EventName.BACKEND_HUNG, EventName.BACKEND_RECOVERED]
    assert rig.owner.state.down != supervised, "that it ends later is news"


def test_one_that_is_frozen_is_not_told_to_hang(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "is_frozen", lambda pid: pid == 10)
    rig.look(2)
    rig.look(round(DetectorSettings().hung_hold_seconds) + 3, http=BUSY)
    assert rig.names() == []


def test_one_that_is_being_ended_does_not_hang(rig: Rig) -> None:
    rig.look(2)
    rig.owner.state = msgspec.structs.replace(rig.owner.state, stage=Stage.STOPPING)
    rig.look(round(DetectorSettings().hung_hold_seconds) + 5, http=BUSY)
    assert rig.names() == []


def test_it_is_explained_by_what_the_last_tick_left(rig: Rig) -> None:
    assert rig.judge.explain(rig.watched, rig.settings) is None
    (rig.root / "proc/10/io").unlink()
    rig.look(3)
    found = rig.judge.explain(rig.watched, rig.settings)
    assert found is not None
    assert [axis.value for axis in found.axes] == [rig.watched.verdict.phase, rig.watched.verdict.paging, "ok"]
    why = {unknown.signal: unknown.why for unknown in found.unknown}
    assert why["process_read_bytes_per_second"] == "/proc/10/io: No such file or directory"


def test_the_cache_of_an_earlier_daemon_stands_in_for_a_minute(rig: Rig) -> None:
    warm_baseline.restore(rig.watched, WarmBaseline(cache_bytes=30 << 20), rig.clock.now)
    rig.look(2)
    assert rig.watched.signals is not None
    assert rig.watched.facts.model_bytes is not None
    lost = rig.watched.signals.get("cache_lost_ratio")
    assert lost == pytest.approx((30 << 20) / rig.watched.facts.model_bytes)
    rig.look(60)
    assert rig.watched.facts.earlier_cache_bytes is None
    assert rig.watched.signals.get("cache_lost_ratio") == 0


def test_the_window_is_bounded_by_time(rig: Rig) -> None:
    rig.look(100)
    assert len(rig.judge._windows["glm"].moments) == 61
    assert [one.at_seconds for one in rig.judge.last_samples] == [rig.clock.now - 1, rig.clock.now]


@pytest.mark.parametrize("text", ["", "\0" * 50, "10 (a) b) S", "MemTotal: x kB\n" * 99])
def test_hostile_files_are_unknown(rig: Rig, text: str) -> None:
    for path in (
        "/proc/meminfo",
        "/proc/10/stat",
        "/proc/10/status",
        "/proc/10/io",
        "/cg/memory.stat",
        "/cg/memory.max",
    ):
        rig.write(path, text)
    rig.look(5, http={"/health": "{", "/slots": "[[[", "/metrics": "\0", "/props": text})
    assert rig.owner.restarts == []


def left_by_an_earlier_daemon(rig: Rig, *names: EventName) -> None:
    """Another daemon on the same machine, which knows what its predecessor told."""
    earlier = EventLog(0.5)
    first = Announcer(earlier, no_alerts(), rig.clock)
    for name in names:
        first.say(name, "glm", "x")
    rig.events = EventLog(1.0, earlier=earlier.since(None))
    rig.judge.close()
    rig.judge = Judge(rig.clock, rig.care, Announcer(rig.events, no_alerts(), rig.clock), str(rig.root))


def test_what_an_earlier_daemon_left_open_is_ended_once_it_is_sure_to_be_over(rig: Rig) -> None:
    begun = (EventName.BACKEND_HUNG, EventName.MEMORY_NEAR_LIMIT, EventName.RELIEF_EXHAUSTED)
    left_by_an_earlier_daemon(rig, *begun)
    rig.look(int(SURE_SECONDS) - 5)
    assert rig.names() == [*begun]
    rig.look(10)
    assert rig.names()[3:] == [EventName.BACKEND_RECOVERED, EventName.MEMORY_RECOVERED]
    ended = [event.ended for event in rig.events.since(None)]
    assert sorted(sum(ended, ())) == [event.id for event in rig.events.since(None)[:3]]
    rig.look(100)
    assert len(rig.names()) == 5


def test_a_restart_that_an_earlier_daemon_left_open_ends_also_where_nothing_runs(rig: Rig) -> None:
    left_by_an_earlier_daemon(rig, EventName.BACKEND_RESTARTING)
    rig.watched.forget_process(rig.clock.now)
    rig.watched.main = None
    rig.look(int(SURE_SECONDS) - 5, http={})
    assert rig.names() == [EventName.BACKEND_RESTARTING]
    rig.look(10, http={})
    begun, over = rig.events.since(None)
    assert (over.name, over.ended) == (EventName.BACKEND_NOT_RESTARTED, (begun.id,))
    rig.look(100, http={})
    assert len(rig.names()) == 2


def test_what_was_left_open_once_more_is_waited_for_as_long(rig: Rig) -> None:
    events = rig.events = EventLog(1.0)
    announcer = Announcer(events, no_alerts(), rig.clock)
    rig.judge.close()
    rig.judge = Judge(rig.clock, rig.care, announcer, str(rig.root))
    for _ in range(2):
        announcer.say(EventName.BACKEND_DOWN, "glm", "x")
        announcer.leave_open("glm")
        rig.look(int(SURE_SECONDS) - 5)
        assert rig.names()[-1] == EventName.BACKEND_DOWN
        rig.look(10)
        assert rig.names()[-1] == EventName.BACKEND_RECOVERED


def test_what_goes_on_is_not_ended_by_the_next_daemon(rig: Rig) -> None:
    rig.set_anonymous(2 * GIB - (60 << 20))
    left_by_an_earlier_daemon(rig, EventName.BACKEND_DOWN, EventName.MEMORY_NEAR_LIMIT)
    rig.look(200, http={}, may_restart=False)
    assert not {EventName.BACKEND_RECOVERED, EventName.MEMORY_RECOVERED} & set(rig.names())


def test_what_was_ended_is_not_ended_again(rig: Rig) -> None:
    left_by_an_earlier_daemon(rig, EventName.BACKEND_DOWN, EventName.BACKEND_RECOVERED)
    rig.look(200)
    assert rig.names() == [EventName.BACKEND_DOWN, EventName.BACKEND_RECOVERED]
