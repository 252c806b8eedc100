"""The self-test over a daemon's life: asked once for what a config needs, told once, and its refusals reach what would act."""

from __future__ import annotations

import logging
import os

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon.paths import Paths
from moetuned.daemon.self_test import AGAIN_SECONDS, SelfTest, refused_swap
from moetuned.daemon.settings import settings_of
from moetuned.decide.capabilities import why_not
from moetuned.host import rehearsed as real
from moetuned.schema.capability import Action, Answer, BackendNeeds, Capability, RehearsalFacts
from moetuned.schema.config import Config

KEY = "rehearsing what actions need"
FACTS = RehearsalFacts(state_directory="/a")
OTHER = RehearsalFacts(state_directory="/b")
REFUSED = Capability("signals", "kill", (Action.PAUSE,), Answer.NO, "not permitted", "allow it")
NO_SWAP = Capability("swap_calls", "swapon", (Action.SWAP_FILE, Action.ZRAM), Answer.NO, "not permitted")
ALLOWED = Capability("signals", "term", (Action.RESTART,), Answer.YES)
NO_FILE = Capability("setting_files", "/proc/x", (Action.CHANGE_SETTING,), Answer.NO, "read-only")


class Rig:
    own_cgroup = "/sys/fs/cgroup/moetuned.slice/moetuned.service"

    def __init__(self) -> None:
        self.workers, self.clock, self.changes = HeldWorkers(), FakeClock(), 0
        self.asked: list[RehearsalFacts] = []
        self.found: tuple[Capability, ...] = (REFUSED,)
        self.test = SelfTest(self.workers, self.clock, self._changed, self._rehearse, lambda: self.own_cgroup)  # type: ignore[arg-type]

    def _changed(self) -> None:
        self.changes += 1

    def _rehearse(self, facts: RehearsalFacts) -> tuple[Capability, ...]:
        self.asked.append(facts)
        return self.found

    def finish(self) -> None:
        self.workers.finish(KEY, really=True)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_before_it_is_done_nothing_is_known_and_nothing_is_off(rig: Rig) -> None:
    assert rig.test.pending
    assert refused_swap(rig.test) is None
    rig.test.consider(FACTS)
    assert rig.test.pending
    assert (rig.test.off, rig.test.answer.cannot) == ((), ())
    rig.finish()
    assert not rig.test.pending
    assert rig.changes == 1
    assert rig.test.answer.capabilities == (REFUSED,)
    assert rig.test.answer.cannot == ("pause backends (kill): not permitted; allow it",)
    settings = rig.test.with_off(settings_of(Config()))
    assert why_not(settings.off, Action.PAUSE, "glm") is not None


def test_the_same_facts_are_rehearsed_once_and_others_again(rig: Rig) -> None:
    rig.test.consider(FACTS)
    rig.finish()
    rig.test.consider(FACTS)
    assert rig.asked == [FACTS]
    rig.test.consider(OTHER)
    rig.finish()
    rig.test.forget()
    rig.test.consider(OTHER)
    rig.finish()
    assert rig.asked == [FACTS, OTHER, OTHER]


def test_facts_that_come_while_it_is_under_way_are_rehearsed_after_it(rig: Rig) -> None:
    rig.test.consider(FACTS)
    rig.test.consider(OTHER)
    rig.finish()
    rig.finish()
    assert rig.asked == [FACTS, OTHER]


def test_each_refusal_is_told_once_and_its_end_too(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        rig.test.forget()
        rig.test.consider(FACTS)
        rig.finish()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    rig.found = ()
    rig.test.forget()
    rig.test.consider(FACTS)
    rig.finish()
    assert caplog.messages[1:] == ["no longer turned off: pause backends (kill): not permitted; allow it"]
    assert rig.test.off == ()


def look(rig: Rig, seconds: float) -> None:
    rig.clock.now += seconds
    rig.test.tick({}, Config(), Paths(None, "/a/undo.jsonl", "/run/x/backends"), ())


def test_what_was_refused_is_tried_again_now_and_then_and_nothing_else(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rig.found = (REFUSED, NO_SWAP, ALLOWED)
    rig.test.consider(FACTS)
    rig.finish()
    look(rig, AGAIN_SECONDS - 1)
    assert rig.asked == [FACTS]
    rig.found = (msgspec.structs.replace(REFUSED, answer=Answer.YES, why="", cure=""), NO_SWAP)
    look(rig, 1)
    rig.finish()
    assert rig.asked[1:] == [msgspec.structs.replace(FACTS, only=(REFUSED.tried, NO_SWAP.tried))]
    assert caplog.messages[3:] == ["no longer turned off: pause backends (kill): not permitted; allow it"]
    assert why_not(rig.test.off, Action.PAUSE, "glm") is None
    assert rig.test.answer.capabilities == (rig.found[0], NO_SWAP, ALLOWED)
    assert rig.changes == 2
    rig.found = (NO_SWAP,)
    look(rig, AGAIN_SECONDS)
    rig.finish()
    assert rig.asked[2].only == (NO_SWAP.tried,)
    assert (rig.changes, len(caplog.messages)) == (2, 4), "the same again is no news"


def test_one_of_several_that_comes_back_is_told_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The others are still off, which was told before."""
    caplog.set_level(logging.INFO)
    other = msgspec.structs.replace(NO_FILE, subject="/proc/y")
    rig.found = (NO_FILE, other)
    rig.test.consider(FACTS)
    rig.finish()
    rig.found = (NO_FILE, msgspec.structs.replace(other, answer=Answer.YES))
    look(rig, AGAIN_SECONDS)
    rig.finish()
    assert caplog.messages == [
        "cannot change a setting (/proc/x): read-only (and 1 more)",
        "no longer turned off: change a setting (/proc/y): read-only",
    ]


def test_what_is_unknown_or_fails_when_it_is_tried_again_stays_off(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.test.consider(FACTS)
    rig.finish()
    off = rig.test.off
    rig.found = (msgspec.structs.replace(REFUSED, answer=Answer.UNKNOWN),)
    look(rig, AGAIN_SECONDS)
    rig.finish()
    look(rig, AGAIN_SECONDS)
    rig.workers.finish(KEY, OSError("no process could be started"))
    assert (rig.test.off, rig.test.answer.state, rig.changes, len(caplog.messages)) == (off, "done", 1, 1)


def test_where_nothing_is_refused_nothing_is_tried_again(rig: Rig) -> None:
    look(rig, AGAIN_SECONDS)
    rig.found = (ALLOWED, msgspec.structs.replace(REFUSED, actions=(Action.OBSERVE,)))
    rig.test.consider(FACTS)
    rig.finish()
    look(rig, AGAIN_SECONDS)
    assert rig.workers.keys() == []
    assert rig.asked == [FACTS]


def test_other_facts_that_come_meanwhile_are_rehearsed_after_it(rig: Rig) -> None:
    rig.test.consider(FACTS)
    rig.finish()
    look(rig, AGAIN_SECONDS)
    rig.test.consider(OTHER)
    rig.finish()
    rig.finish()
    assert [(one.state_directory, one.only is None) for one in rig.asked] == [("/a", True), ("/a", False), ("/b", True)]


def test_one_that_failed_turns_nothing_off_and_says_why(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.test.consider(FACTS)
    rig.workers.finish(KEY, OSError("no process could be started"))
    assert (rig.test.answer.state, rig.test.answer.detail) == ("failed", "no process could be started")
    assert not rig.test.pending
    assert rig.test.off == ()
    assert "none is turned off" in caplog.text


def test_one_that_failed_as_a_whole_is_made_again_as_a_whole(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Memory may have been short for a moment at the start. The same failure again is told once."""
    rig.test.consider(FACTS)
    rig.workers.finish(KEY, OSError("no process could be started"))
    look(rig, AGAIN_SECONDS - 1)
    assert rig.workers.keys() == []
    look(rig, 1)
    rig.workers.finish(KEY, OSError("no process could be started"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    look(rig, AGAIN_SECONDS)
    rig.finish()
    assert rig.asked == [FACTS], "all of it, and not only what was refused"
    assert (rig.test.answer.state, rig.test.answer.capabilities) == ("done", (REFUSED,))
    assert why_not(rig.test.off, Action.PAUSE, "glm") is not None


def test_refused_swap_and_settings(rig: Rig) -> None:
    rig.found = (NO_SWAP, NO_FILE)
    rig.test.consider(FACTS)
    rig.finish()
    refused = refused_swap(rig.test)
    assert refused == dict.fromkeys((Action.SWAP_FILE, Action.ZRAM), "turned off: not permitted")
    assert rig.test.refused_files == {"/proc/x": "turned off: read-only"}


def test_where_backends_of_the_config_run_is_kept_when_they_end(rig: Rig) -> None:
    config = Config(backends=[])
    paths = Paths(None, "/state/undo.jsonl", "/run/x/backends")
    rig.test.follow(config, paths, ())
    rig.finish()
    assert rig.asked[0].state_directory == "/state"
    assert rig.asked[0].runtime_directory == "/run/x"
    assert not rig.test.follow_cgroups({"somebody's": "/sys/fs/cgroup/x"})


def test_where_a_backend_only_passes_through_is_not_where_it_runs(rig: Rig) -> None:
    """A child of the daemon begins in the daemon's cgroup; one of systemd may begin in systemd's."""
    rig.test.consider(RehearsalFacts(backends=(BackendNeeds("glm", "process"),)))
    rig.finish()
    for passed in (rig.own_cgroup, "/sys/fs/cgroup/moetuned.slice", "/sys/fs/cgroup/init.scope", None):
        assert not rig.test.follow_cgroups({"glm": passed})
    assert rig.test.cgroups == {}
    there = "/sys/fs/cgroup/moetuned.slice/glm.scope"
    assert rig.test.follow_cgroups({"glm": there})
    assert not rig.test.follow_cgroups({"glm": there})
    assert not rig.test.follow_cgroups({"glm": rig.own_cgroup}), "it is started again"
    assert not rig.test.follow_cgroups({"glm": None})
    assert rig.test.cgroups == {"glm": there}


def test_the_real_one_answers(rig: Rig) -> None:
    test = SelfTest(rig.workers, rig.clock, rig._changed, real.rehearsed)  # type: ignore[arg-type]
    test.consider(RehearsalFacts(state_directory=os.getcwd(), discovers=False))
    rig.finish()
    assert test.answer.state == "done"
    assert {one.rehearsal for one in test.answer.capabilities} >= {"own_directories", "programs", "sockets"}
