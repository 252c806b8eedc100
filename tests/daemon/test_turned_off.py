"""What the self-test turned off, where something would act: relief, hangs, locks, settings, swap; each says why and goes on without."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers
from fakes.fake_kernel import usual_kernel
from fakes.fake_swap import FakeMachine, FakeSwapHost

from moetuned.daemon.hanging import end_hung, outlook
from moetuned.daemon.loop import Loop
from moetuned.daemon.manual_actions import ManualActions
from moetuned.daemon.protecting import Protecting
from moetuned.daemon.relieving import relief_facts
from moetuned.daemon.settings import Settings, settings_of
from moetuned.daemon.swap_keeper import SwapKeeper
from moetuned.daemon.tuning_keeper import TuningKeeper
from moetuned.daemon.turned_off import cannot
from moetuned.daemon.watched import Watched
from moetuned.decide.detector_hung import Stillness
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.processes import ProcessIdentity
from moetuned.host.swap_facts import with_refused
from moetuned.schema.capability import Action, TurnedOff
from moetuned.schema.config import Config, Mode, Profile, Protect, Relief, Tuning, Warm
from moetuned.schema.supervision import BackendDo
from moetuned.schema.swap import Swap, SwapFacts, SwapFileFacts

PRESSURE = "/proc/sys/vm/vfs_cache_pressure"


def settings(*actions: Action, others: bool = False) -> Settings:
    config = Config(relief=Relief(mode=Mode.ACT), warm=Warm(protect=Protect.ON))
    off = tuple(TurnedOff(action, "refused", "x", "glm", other_user=others) for action in actions)
    return msgspec.structs.replace(settings_of(config), off=off)


class Owner:
    """A supervisor that says it can do all."""

    def __init__(self) -> None:
        self.state = Supervision("glm", LaunchPlan(8192), stage=Stage.READY)
        self.who, self.ends_hung, self.draining, self.held, self.pausable = "llama.service", True, False, False, True
        self.check = self.paused_wall_seconds = self.paused = self.waits_because = self.load_seconds = None
        self.process: object = object()
        self.hangs = 0

    def sets(self, _value: str) -> bool:
        return True

    def knows(self, _value: str) -> bool:
        return True

    def hung(self) -> None:
        self.hangs += 1


@pytest.fixture
def watched() -> Watched:
    watched = Watched("glm", None, 0.0)
    watched.process = ProcessIdentity(os.getpid(), 1)
    watched.supervisor = Owner()  # type: ignore[assignment]
    return watched


def test_with_nothing_off_nothing_is_asked(watched: Watched) -> None:
    assert all(cannot(watched, settings(), action) is None for action in Action)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to start a process of another user")
def test_what_concerns_others_counts_for_a_process_of_another_user_only(watched: Watched) -> None:
    off = settings(Action.PAUSE, others=True)
    assert cannot(watched, off, Action.PAUSE) is None
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, user=65534, group=65534, extra_groups=[]) as other:
        watched.process = ProcessIdentity(other.pid, 1)
        assert cannot(watched, off, Action.PAUSE) == "turned off: refused"
        other.stdin.close()  # type: ignore[union-attr]
    assert cannot(watched, off, Action.PAUSE) is None  # it has ended: not known
    watched.process = None
    assert cannot(watched, off, Action.PAUSE) is None


def test_relief_knows_what_it_cannot_do(watched: Watched) -> None:
    facts = relief_facts(watched, settings(Action.RESTART, Action.PAUSE))
    assert facts.cannot_restart == "turned off: refused"
    assert not facts.pausable
    facts = relief_facts(watched, settings(Action.WARM))
    assert facts.cannot_restart is None
    assert facts.pausable


def test_one_that_hangs_is_told_and_not_ended(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moetuned.daemon.hanging.is_frozen", lambda _pid: False)
    phase = msgspec.structs.replace(watched.detector.phase, stillness=Stillness(still_seconds=200.0, hung=True))
    watched.detector, watched.hung_told = msgspec.structs.replace(watched.detector, phase=phase), True
    off = settings(Action.RESTART)
    end_hung(watched, off)
    assert watched.supervisor.hangs == 0  # type: ignore[union-attr]
    assert watched.would_do[-1].endswith("but turned off: refused")
    assert outlook(watched, off) == "moetuned does not: turned off: refused"
    end_hung(watched, settings())
    assert watched.supervisor.hangs == 1  # type: ignore[union-attr]


def test_nothing_is_locked(watched: Watched) -> None:
    clock = FakeClock()
    protecting = Protecting(Loop(clock), clock)
    protecting.tick(watched, settings(Action.PROTECT), clock.now)
    assert (watched.protect.state, watched.protect.detail) == ("none", "turned off: refused")


def test_who_asks_for_it_by_hand_is_told(watched: Watched) -> None:
    by_hand = ManualActions(FakeClock())
    for do in (BackendDo.RESTART, BackendDo.PAUSE):
        answer = by_hand.ask(watched, settings(Action(do.value)), do, None, now=True, dry_run=False)
        assert answer == (409, {"error": "turned off: refused"})


def test_a_setting_is_skipped_with_the_reason_and_taken_up_again(tmp_path: Path) -> None:
    kernel = usual_kernel()
    keeper = TuningKeeper(kernel, str(tmp_path / "state" / "undo.jsonl"))
    config = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD))
    assert keeper.refuse({PRESSURE: "turned off: read-only"})
    assert not keeper.refuse({PRESSURE: "turned off: read-only"})
    keeper.apply(config)
    views = {view.name: view for view in keeper.views}
    assert (views["vm.vfs_cache_pressure"].state, views["vm.vfs_cache_pressure"].detail) == (
        "skipped",
        "turned off: read-only",
    )
    assert PRESSURE not in [path for path, *_ in kernel.writes()]
    assert "applied" in {view.state for view in keeper.views}
    assert any(step.blocked for step in keeper.steps)
    assert keeper.refuse({})
    keeper.apply(config)
    assert {view.name: view.state for view in keeper.views}["vm.vfs_cache_pressure"] == "applied"
    keeper.rollback()


def test_swap_is_made_only_once_it_is_known_that_it_can_be() -> None:
    machine, workers = FakeMachine(), HeldWorkers()
    host = FakeSwapHost(machine)
    keeper = SwapKeeper(usual_kernel(), "/state", workers, host)  # type: ignore[arg-type]
    config = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD, swap=Swap(file="/data/swapfile", size="4GiB")))
    keeper.apply(config, changed=lambda: None, refused=None)
    assert keeper.waits
    assert keeper.idle
    keeper.apply(config, changed=lambda: None, refused={Action.SWAP_FILE: "turned off: no"})
    assert not keeper.waits
    assert host.refused == {Action.SWAP_FILE: "turned off: no"}
    assert not keeper.is_news({Action.SWAP_FILE: "turned off: no"})
    assert keeper.is_news({}), "it can be made by now"
    keeper.apply(config, changed=lambda: None, refused={})
    assert not keeper.is_news({})
    keeper.apply(config, changed=lambda: None, refused=None)
    assert keeper.is_news({})
    keeper.take_away()
    assert not keeper.waits


def test_what_was_refused_is_a_fact_of_the_swap_plan() -> None:
    facts = SwapFacts(file=SwapFileFacts())
    both = with_refused(facts, {Action.SWAP_FILE: "no file", Action.ZRAM: "no zram"})
    assert both.file is not None
    assert (both.file.problem, both.zram_refusal, both.refusal) == ("no file", "no zram", None)
    assert with_refused(facts, {}) == facts
    known = SwapFacts(zram_refusal="this kernel has no zram")
    assert with_refused(known, {Action.ZRAM: "no"}).zram_refusal == "this kernel has no zram"
