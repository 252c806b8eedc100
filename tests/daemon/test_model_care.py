"""The model's header, residency and warming: read in workers, bound to the process and file they were asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from daemon_fakes import FakeClock, FakeFollowed, HeldWorkers

from moetuned.daemon import model_care as module
from moetuned.daemon.loop import Loop
from moetuned.daemon.model_care import ModelCare, kv_cost
from moetuned.daemon.settings import Settings, settings_of
from moetuned.daemon.supervisor import Supervisor
from moetuned.daemon.watched import Watched
from moetuned.decide.warm_plan import KnownUse
from moetuned.gguf.experts import expert_slices
from moetuned.host.expert_residency import shape
from moetuned.host.processes import ProcessIdentity
from moetuned.host.spawn import StartError
from moetuned.host.warming import WarmProgress
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.capability import Action, TurnedOff
from moetuned.schema.config import Config
from moetuned.schema.heat import ExpertPages
from moetuned.schema.model import ByteRange
from moetuned.schema.sample import Residency
from moetuned.schema.signals import Signals
from moetuned.schema.snapshot import MemoryView, WarmView
from moetuned.schema.verdict import MemoryState, Phase, Verdict

GIB = 1 << 30
WIDE = MemoryView("/sys/fs/cgroup/llm", limit_bytes=4 * GIB, headroom_bytes=3 * GIB, file_cache_bytes=GIB)
SETTINGS: Settings = settings_of(Config())


class FakeHeat:
    """What is known of the use of experts: nothing, unless a test says otherwise."""

    def __init__(self) -> None:
        self.known: KnownUse | None = None
        self.opening = False
        self.paged_out: list[ByteRange] = []
        self.then: Callable[[bool], None] | None = None
        self.may_page_out: list[bool] = []
        self.stays = 0
        self.renewed = self.warmings_noted = self.kept = 0

    def tick(self, _watched: Watched, _now: float, *, may_page_out: bool) -> None:
        self.may_page_out.append(may_page_out)

    def note_stays(self, _watched: Watched) -> None:
        self.stays += 1

    def renew(self, _watched: Watched) -> None:
        self.renewed += 1

    def note_warming(self, _watched: Watched) -> None:
        self.warmings_noted += 1

    def keep(self, _watched: Watched) -> None:
        self.kept += 1

    def is_opening(self, _watched: Watched) -> bool:
        return self.opening

    def use(self, _watched: Watched) -> KnownUse | None:
        return self.known

    def page_out(self, _watched: Watched, ranges: Sequence[ByteRange], then: Callable[[bool], None]) -> bool:
        self.paged_out, self.then = list(ranges), then
        return True


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.workers = HeldWorkers()
        self.heat = FakeHeat()
        self.care = ModelCare(self.loop, self.clock, self.workers, self.heat)  # type: ignore[arg-type]
        self.watched = Watched("glm", None, self.clock.now)
        self.watched.follow_process(ProcessIdentity(10, 1), self.clock.now)
        self.warmings: list[FakeFollowed] = []
        self.asked: list[dict] = []

    def warm_in_cgroup(self, paths, ranges, twice, **options) -> FakeFollowed:
        self.asked.append({"bytes": sum(one.length for one in (*ranges, *twice)), **options})
        self.warmings.append(FakeFollowed(WarmProgress("running", 0, 100)))
        return self.warmings[-1]

    def learn(self, path: Path) -> None:
        self.care.learn_model(self.watched, str(path))
        self.workers.finish("reading the model", really=True)

    def tick(self, **settings: object) -> None:
        self.care.tick(self.watched, msgspec.structs.replace(SETTINGS, **settings), self.clock.now)

    def make_ready(self) -> None:
        """All that warming needs to know."""
        self.watched.ready_at = self.clock.now
        self.watched.limits = (WIDE,)

    def see_residency(self, cached: int = 0) -> None:
        self.watched.residency, self.watched.residency_at = Residency(cached, cached, 0), self.clock.now


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig()
    monkeypatch.setattr(module, "warm_in_cgroup", rig.warm_in_cgroup)
    yield rig
    rig.loop.close()
    for warming in rig.warmings:
        warming.close()


def test_a_model_is_read_once_and_again_when_its_file_changed(rig: Rig, small_model: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(small_model.read_bytes())
    rig.learn(model)
    first = rig.watched.model
    assert first is not None
    assert rig.watched.model_unknown is None
    rig.learn(model)
    assert rig.watched.model is first
    os.utime(model, ns=(1, 1))
    rig.learn(model)
    assert rig.watched.model is not first
    assert rig.watched.model.identity == first.identity


def test_a_path_that_changes_while_one_is_read_is_read_next(rig: Rig, small_model: Path) -> None:
    rig.care.learn_model(rig.watched, "/nowhere/old.gguf")
    rig.care.learn_model(rig.watched, str(small_model))
    assert len(rig.workers.jobs) == 1
    rig.workers.finish("reading the model", really=True)
    assert rig.watched.model is None
    rig.workers.finish("reading the model", really=True)
    assert rig.watched.model is not None


def test_a_model_that_cannot_be_read_says_why_and_is_tried_again(rig: Rig, small_model: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    rig.learn(model)
    assert "No such file" in (rig.watched.model_unknown or "")
    model.write_bytes(b"rubbish" * 100)
    rig.learn(model)
    assert rig.watched.model is None
    model.write_bytes(small_model.read_bytes())
    rig.learn(model)
    assert rig.watched.model_unknown is None


def test_no_path_is_unknown(rig: Rig) -> None:
    rig.care.learn_model(rig.watched, None)
    assert rig.workers.jobs == []
    assert "names no model" in (rig.watched.model_unknown or "")


def test_residency_of_this_process_and_model_only(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.tick()
    rig.watched.follow_process(ProcessIdentity(11, 2), rig.clock.now)
    rig.workers.finish("residency", really=True)
    assert rig.watched.fresh_residency is None
    rig.tick()
    rig.workers.finish("residency", really=True)
    assert rig.watched.fresh_residency is not None
    assert rig.watched.residency_unknown is None


@pytest.mark.parametrize("collected", [False, True], ids=["still running", "not yet taken"])
def test_warming_that_is_asked_for_looks_again(rig: Rig, small_model: Path, collected: bool) -> None:
    """Memory can have been taken since the scan that is running, or that nobody has taken yet, looked."""
    rig.learn(small_model)
    rig.tick()
    if collected:
        rig.workers.finish("residency", really=True)
    rig.clock.now += 0.1
    rig.care.want_warm(rig.watched, "somebody asked for it")
    rig.tick()
    if not collected:
        rig.workers.finish("residency", really=True)
        assert rig.watched.fresh_residency is None
        rig.clock.now += 0.1
        rig.tick()
    assert rig.watched.fresh_residency is None
    rig.workers.finish("residency", really=True)
    assert rig.watched.fresh_residency is not None


def test_a_dear_scan_is_made_less_often(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.tick()
    rig.workers.finish("residency", module._Scanned(None, "the kernel refuses", 8.0))
    assert rig.watched.residency_unknown == "the kernel refuses"
    assert rig.watched.next_residency == pytest.approx(rig.clock.now + 8.0 / module.SCAN_CPU_SHARE)
    rig.tick()
    assert rig.workers.jobs == []


def test_kv_cost_needs_model_and_command_line(rig: Rig, small_model: Path) -> None:
    assert kv_cost(rig.watched) is None
    rig.learn(small_model)
    assert kv_cost(rig.watched) is None
    rig.watched.description = BackendDescription()
    plain = kv_cost(rig.watched)
    rig.watched.description = BackendDescription(cache_type_k="q8_0", cache_type_v="q8_0")
    small = kv_cost(rig.watched)
    assert plain is not None
    assert small is not None
    assert 0.5 * plain < small < 0.6 * plain


def test_warms_once_all_is_known(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.tick()
    assert rig.watched.warm.state == "waiting"
    rig.make_ready()
    rig.tick()
    assert rig.asked == []
    rig.see_residency()
    rig.tick(warm_budget_bytes=8 << 20, warm_rate_bytes_per_second=5)
    assert rig.asked[0]["rate_bytes_per_second"] == 5
    assert 0 < rig.asked[0]["bytes"] <= 2 * (8 << 20)
    assert rig.watched.warm.state == "running"
    rig.warmings[0].say(WarmProgress("running", 40, 100))
    rig.loop.run_once(0)
    assert rig.watched.warm.done_bytes == 40
    rig.warmings[0].say(WarmProgress("done", 100, 100))
    rig.loop.run_once(0)
    assert rig.watched.warm.state == "done"
    assert rig.watched.warming is None
    rig.tick()
    assert len(rig.asked) == 1
    assert rig.heat.renewed == 1, "the plan is made of a look that is new"
    assert rig.heat.warmings_noted == 2, "it may fit between two ticks"


def busy(rig: Rig) -> None:
    rig.watched.verdict = Verdict("glm", 0.0, phase=Phase.DECODE)
    rig.watched.signals = Signals("glm", 0.0, 1.0, {"process_read_bytes_per_second": 50e6})


def near_limit(rig: Rig) -> None:
    rig.watched.verdict = Verdict("glm", 0.0, memory=MemoryState.NEAR_LIMIT)


def calm(rig: Rig) -> None:
    rig.watched.verdict = Verdict("glm", 0.0, phase=Phase.IDLE)


def test_it_waits_until_it_is_known_what_was_learned(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.make_ready()
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.see_residency()
    rig.heat.opening = True
    rig.tick()
    assert rig.asked == []
    rig.heat.opening = False
    rig.tick()
    assert len(rig.asked) == 1
    assert rig.asked[0]["backend"] == rig.watched.process


def page_out_first(rig: Rig, small_model: Path) -> None:
    """Up to a plan that pages out what loading left."""
    rig.learn(small_model)
    rig.make_ready()
    model = rig.watched.model
    assert model is not None
    assert model.experts is not None
    layers, experts = shape(model.experts)
    cells = [(layer, expert) for layer in range(layers) for expert in range(experts)]
    whole = tuple(sum(one.length for one in expert_slices(model.experts, *cell)) // 4096 + 1 for cell in cells)
    pages = ExpertPages(layers, experts, (0, *whole[1:]), whole)
    rig.heat.known = KnownUse(model.experts, ((0, 0),), pages, just_loaded=True, twice=False)
    size = model.identity.size_bytes
    rig.watched.limits = (MemoryView("cgroup", limit_bytes=size, headroom_bytes=size, file_cache_bytes=size),)
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.watched.residency = Residency(size * 9 // 10, size * 8 // 10, size // 10)
    rig.watched.residency_at = rig.clock.now
    rig.tick()
    assert rig.heat.paged_out
    assert rig.asked == []
    assert rig.watched.warm.state == "running"
    assert rig.heat.then is not None


def test_what_loading_left_is_paged_out_before_what_was_used_is_touched(rig: Rig, small_model: Path) -> None:
    page_out_first(rig, small_model)
    assert rig.heat.then is not None
    rig.heat.then(True)
    rig.heat.then(True)
    assert len(rig.asked) == 1, "never two at once"


def test_where_paging_out_does_nothing_it_is_planned_again(rig: Rig, small_model: Path) -> None:
    """Without it there is no room: what is touched would push out something else."""
    page_out_first(rig, small_model)
    assert rig.heat.then is not None
    rig.heat.then(False)
    assert rig.asked == []
    assert rig.watched.warm_wanted == "the backend has loaded"
    assert rig.heat.renewed == 2, "of a new look"
    known = rig.heat.known
    assert known is not None
    rig.heat.known = msgspec.structs.replace(known, just_loaded=False)
    rig.heat.paged_out = []
    rig.see_residency(rig.watched.model.identity.size_bytes * 9 // 10)  # type: ignore[union-attr]
    rig.tick()
    assert rig.heat.paged_out == []
    assert rig.watched.warm_wanted is None


@pytest.mark.parametrize("left", [True, False])
def test_after_the_end_paging_out_starts_nothing(rig: Rig, small_model: Path, left: bool) -> None:
    page_out_first(rig, small_model)
    assert rig.heat.then is not None
    rig.care.end(rig.watched)
    rig.heat.then(left)
    assert rig.asked == []
    assert rig.watched.warm_wanted is None


class Owner:
    """A supervisor that only takes notes."""

    def __init__(self) -> None:
        self.owed: list[bool] = []

    def note_warm_owed(self, owed: bool) -> None:
        if self.owed[-1:] != [owed]:
            self.owed.append(owed)


def test_warming_is_owed_until_it_has_ended(rig: Rig, small_model: Path) -> None:
    owner = Owner()
    rig.watched.supervisor = owner  # type: ignore[assignment]
    rig.learn(small_model)
    rig.tick()
    assert owner.owed == [], "what the record says counts until it is ready"
    rig.make_ready()
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.tick()
    rig.see_residency()
    rig.tick()
    assert rig.warmings
    assert owner.owed == [True]
    rig.warmings[0].say(WarmProgress("paused", 40, 100))
    rig.loop.run_once(0)
    rig.tick()
    assert owner.owed == [True]
    rig.warmings[0].say(WarmProgress("done", 100, 100))
    rig.loop.run_once(0)
    assert owner.owed == [True, False], "at once: a daemon that dies now must not be followed by a second warming"
    rig.tick()
    assert owner.owed == [True, False]


def test_nothing_is_owed_where_nothing_is_to_be_warmed(rig: Rig) -> None:
    owner = Owner()
    rig.watched.supervisor = owner  # type: ignore[assignment]
    rig.make_ready()
    rig.tick(warm_enabled=False)
    assert owner.owed == [False]


def test_what_came_of_it_has_its_time(rig: Rig, small_model: Path) -> None:
    """There may be room again since."""
    rig.learn(small_model)
    rig.make_ready()
    rig.watched.limits = (MemoryView("cgroup", limit_bytes=GIB, headroom_bytes=0, file_cache_bytes=0),)
    rig.care.want_warm(rig.watched, "the backend has loaded")
    assert rig.watched.warm.ended_wall_seconds is None
    rig.see_residency()
    rig.tick()
    assert rig.watched.warm.detail == "there is no free memory to warm the model into"
    assert rig.watched.warm.ended_wall_seconds == rig.clock.wall()


def test_only_what_moetuned_supervises_may_be_paged_out(rig: Rig) -> None:
    rig.tick()
    rig.watched.supervisor = Owner()  # type: ignore[assignment]
    rig.tick()
    rig.tick(warm_enabled=False)
    assert rig.heat.may_page_out == [False, True, False]


def test_one_that_pauses_by_itself_says_why_and_how_long(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.make_ready()
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.see_residency()
    rig.tick()
    rig.warmings[0].say(WarmProgress("paused", 40, 100, detail="the backend reads", eta_seconds=3.0))
    rig.loop.run_once(0)
    assert rig.watched.warm == WarmView("paused", 40, 100, "the backend reads", 3.0)
    busy(rig)
    rig.tick()
    assert not rig.warmings[0].stopped


@pytest.mark.parametrize("disturb", [near_limit])
def test_pauses_when_it_would_do_harm_and_goes_on_afterwards(rig: Rig, small_model: Path, disturb) -> None:
    rig.learn(small_model)
    rig.make_ready()
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.see_residency()
    rig.tick()
    disturb(rig)
    rig.tick()
    rig.tick()
    assert rig.warmings[0].stopped
    rig.warmings[0].say(WarmProgress("stopped", 40, 100))
    rig.loop.run_once(0)
    assert rig.watched.warm.state == "paused"
    rig.see_residency()
    rig.tick()
    assert len(rig.asked) == 1
    assert rig.watched.warm.state == "paused"
    calm(rig)
    rig.tick()
    assert len(rig.asked) == 2


def with_cache(view: MemoryView, free_bytes: int) -> MemoryView:
    """So much page cache that this is free."""
    assert view.headroom_bytes is not None
    return msgspec.structs.replace(view, file_cache_bytes=view.headroom_bytes - free_bytes)


ABOVE = MemoryView("/sys/fs/cgroup", limit_bytes=16 * GIB, headroom_bytes=12 * GIB, file_cache_bytes=GIB)


@pytest.mark.parametrize(
    ("limits", "scope"),
    [((with_cache(WIDE, 5 << 20), ABOVE), WIDE.scope), ((WIDE, with_cache(ABOVE, 5 << 20)), ABOVE.scope)],
    ids=["its own cgroup", "a cgroup above"],
)
def test_room_that_something_else_takes_ends_it(
    rig: Rig, small_model: Path, limits: tuple[MemoryView, ...], scope: str
) -> None:
    rig.learn(small_model)
    rig.make_ready()
    rig.watched.limits = (WIDE, ABOVE)
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.see_residency()
    rig.tick()
    rig.tick()
    assert not rig.warmings[0].stopped
    rig.watched.limits = limits
    rig.tick()
    rig.tick()
    assert rig.warmings[0].stopped
    rig.warmings[0].say(WarmProgress("stopped", 40, 100))
    rig.loop.run_once(0)
    assert rig.watched.warm.state == "failed"
    assert "something else took the memory that was free" in rig.watched.warm.detail
    assert scope in rig.watched.warm.detail
    rig.tick()
    assert len(rig.asked) == 1, "it is not tried again by itself"
    rig.watched.limits = (WIDE, ABOVE)
    rig.care.want_warm(rig.watched, "somebody asked for it")
    rig.see_residency()
    rig.tick()
    rig.tick()
    assert len(rig.asked) == 2
    assert not rig.warmings[1].stopped


def test_memory_that_was_full_before_does_not_end_what_fills_none(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.make_ready()
    full = with_cache(ABOVE, 0)
    rig.watched.limits = (with_cache(WIDE, GIB), full)
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.see_residency(cached=4 << 20)
    rig.tick()
    assert rig.asked[0]["bytes"] <= 4 << 20, "the limit above has no room for more than is there"
    rig.tick()
    assert not rig.warmings[0].stopped


def test_room_made_by_paging_out_is_watched_too(rig: Rig, small_model: Path) -> None:
    page_out_first(rig, small_model)
    assert rig.heat.then is not None
    rig.heat.then(True)
    full = rig.watched.limits[0]
    rig.tick()
    assert not rig.warmings[0].stopped, "it was full before"
    rig.watched.limits = (with_cache(full, full.limit_bytes or 0),)
    rig.tick()
    assert not rig.warmings[0].stopped
    rig.watched.limits = (full,)
    rig.tick()
    assert rig.warmings[0].stopped


def test_a_warming_process_that_cannot_start_is_told(rig: Rig, small_model: Path, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StartError("cannot start the warming process: no memory")

    monkeypatch.setattr(module, "warm_in_cgroup", refuse)
    rig.learn(small_model)
    rig.make_ready()
    rig.care.want_warm(rig.watched, "somebody asked for it")
    rig.see_residency()
    rig.tick()
    assert (rig.watched.warm.state, rig.watched.warm.detail) == (
        "failed",
        "cannot start the warming process: no memory",
    )


def test_nothing_is_called_back_after_the_end(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.make_ready()
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.see_residency()
    rig.tick()
    rig.care.end(rig.watched)
    assert rig.warmings[0].killed
    assert rig.heat.kept == 1
    assert rig.watched.warm.state == "off"
    rig.warmings[0].say(WarmProgress("done", 100, 100))
    rig.loop.run_once(0)
    assert rig.watched.warm.state == "off"
    rig.tick()
    assert len(rig.asked) == 1


def test_what_the_machine_refuses_is_not_tried(rig: Rig, small_model: Path) -> None:
    rig.learn(small_model)
    rig.make_ready()
    rig.watched.supervisor = cast("Supervisor", SimpleNamespace(note_warm_owed=lambda _owed: None))
    off = (TurnedOff(Action.PAGE_OUT, "no CAP_SYS_NICE", "x"),)
    rig.care.want_warm(rig.watched, "the backend has loaded")
    rig.see_residency()
    rig.tick(off=off)
    assert len(rig.warmings) == 1
    assert (rig.heat.may_page_out[-1], rig.heat.stays) == (False, 1)
    rig.watched.warming = None
    rig.care.want_warm(rig.watched, "somebody asked for it")
    rig.see_residency()
    rig.tick(off=(TurnedOff(Action.WARM, "its cgroup is read-only", "x", "glm"),))
    assert len(rig.warmings) == 1
    assert rig.watched.warm == WarmView("off", detail="turned off: its cgroup is read-only")
    assert rig.watched.warm_wanted is None
