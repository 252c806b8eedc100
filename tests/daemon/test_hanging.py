"""A backend that hangs is ended, if that is allowed, known and told."""

from __future__ import annotations

import msgspec
import pytest

from moetuned.daemon import hanging
from moetuned.daemon.hanging import end_hung, outlook
from moetuned.daemon.settings import settings_of
from moetuned.daemon.watched import Watched
from moetuned.decide.detector_hung import Stillness
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.config import Config, Mode, Relief


class Owner:
    def __init__(self) -> None:
        self.state = Supervision("glm", LaunchPlan(8192), stage=Stage.READY)
        self.hangs = 0
        self.asked = False
        self.who = "llama.service"

    @property
    def ends_hung(self) -> bool:
        return self.state.stage is Stage.READY and not self.asked

    def hung(self) -> None:
        self.hangs += 1


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def watched(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched("glm", None, 0.0)
    watched.process = ProcessIdentity(10, 100)
    watched.supervisor = owner  # type: ignore[assignment]
    watched.hung_told = True
    still(watched, 120.0)
    monkeypatch.setattr(hanging, "is_frozen", lambda pid: False)
    return watched


def still(watched: Watched, seconds: float, *, hung: bool = True) -> None:
    phase = msgspec.structs.replace(watched.detector.phase, stillness=Stillness(still_seconds=seconds, hung=hung))
    watched.detector = msgspec.structs.replace(watched.detector, phase=phase)


def end(watched: Watched, mode: Mode = Mode.ACT, after: str = "2m") -> None:
    end_hung(watched, settings_of(Config(relief=Relief(mode=mode, restart_hung=after))))


def test_it_is_ended_after_its_time(watched: Watched, owner: Owner) -> None:
    still(watched, 119.0)
    end(watched)
    assert owner.hangs == 0
    still(watched, 120.0)
    end(watched)
    assert (owner.hangs, watched.would_do) == (1, ())


def test_in_observe_mode_it_is_only_said(watched: Watched, owner: Owner) -> None:
    end(watched, Mode.OBSERVE)
    assert owner.hangs == 0
    assert watched.would_do == ("end it and start it again: it has hung for 2 min (limit 2 min)",)


@pytest.mark.parametrize("why", ["off", "not told", "moves", "is restarted", "frozen", "perhaps frozen", "no process"])
def test_it_is_left_alone(watched: Watched, owner: Owner, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    match why:
        case "not told":
            watched.hung_told = False
        case "moves":
            still(watched, 500.0, hung=False)
        case "is restarted":
            owner.state = msgspec.structs.replace(owner.state, stage=Stage.STOPPING)
        case "frozen" | "perhaps frozen":
            monkeypatch.setattr(hanging, "is_frozen", lambda pid: True if why == "frozen" else None)
        case "no process":
            watched.process = None
    end(watched, after="off" if why == "off" else "2m")
    assert owner.hangs == 0
    assert watched.would_do == ()


def test_one_that_nobody_supervises_is_left_alone(watched: Watched, owner: Owner) -> None:
    watched.supervisor = None
    end(watched)
    assert (owner.hangs, watched.would_do) == (0, ())


def test_one_whose_manager_was_asked_already_is_named_no_more(
    watched: Watched, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    owner.asked = True
    end(watched)
    end(watched, Mode.OBSERVE)
    assert (owner.hangs, watched.would_do, caplog.messages) == (0, (), [])


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("act", "moetuned does so once it has hung for 2 min (relief.restart_hung)"),
        ("observe", "moetuned does not: relief.mode is observe"),
        ("off", "moetuned does not: relief.restart_hung is off"),
        ("asked", "moetuned does not: llama.service was asked for that already"),
        ("watched", "moetuned does not: it only watches it"),
        ("perhaps frozen", "moetuned does not while it is not known whether its cgroup is frozen"),
    ],
)
def test_it_is_told_whether_it_is_restarted(
    watched: Watched, owner: Owner, monkeypatch: pytest.MonkeyPatch, why: str, said: str
) -> None:
    owner.asked = why == "asked"
    if why == "watched":
        watched.supervisor = None
    if why == "perhaps frozen":
        monkeypatch.setattr(hanging, "is_frozen", lambda pid: None)
    mode = Mode.OBSERVE if why == "observe" else Mode.ACT
    settings = settings_of(Config(relief=Relief(mode=mode, restart_hung="off" if why == "off" else "2m")))
    assert outlook(watched, settings) == said
    if why != "act":
        hangs = owner.hangs
        end_hung(watched, settings)
        assert owner.hangs == hangs
