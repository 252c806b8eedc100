"""Asking a daemon to warm, and following it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moetuned.api.errors import DaemonUnreachable
from moetuned.cli.warm_by_daemon import backend_with, look_after, look_of, warm_by_daemon
from moetuned.schema.model import ModelLayout
from moetuned.schema.snapshot import BackendView, ResidencyView, SelfView, Snapshot, WarmView
from moetuned.schema.verdict import MemoryState, Reason, Verdict

LAYOUT = ModelLayout(2, 4, 2, 10, 900, 100, 20)


def view(state: str = "done", done: int = 0, goal: int = 0, detail: str = "", **more: object) -> BackendView:
    plain = BackendView(
        "glm",
        "llama-server",
        Verdict("glm", 0.0),
        "is idle",
        pid=7,
        model_path="/m.gguf",
        model_bytes=1000,
        layout=LAYOUT,
        warm=WarmView(state, done, goal, detail),
        residency=ResidencyView(400, 300, 100, 0.0),
    )
    return msgspec.structs.replace(plain, **more)


class Daemon:
    """Answers one view after another, the last one for ever; a new tick with each."""

    def __init__(self, *views: BackendView | None) -> None:
        self.views = list(views)
        self.posted: list[object] = []
        self.ticks = 0

    def status(self) -> Snapshot:
        shown = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        self.ticks += 1
        daemon = SelfView(1, "0", 0.0, ticks=self.ticks)
        return Snapshot(1, 0.0, 0.0, "observe", "observe", None, daemon, backends=() if shown is None else (shown,))

    def post(self, path: str, payload: object = None) -> object:
        self.posted.append((path, payload))
        return {}


def pause(_seconds: float) -> None:
    pass


def follow(*views: BackendView | None) -> tuple[str, str, int]:
    outcome = warm_by_daemon(Daemon(*views), "glm", lambda *_: None, pause)
    return outcome.state, outcome.detail, outcome.done_bytes


def test_it_is_asked_and_followed() -> None:
    drawn: list[tuple[int, int, str]] = []
    daemon = Daemon(
        view("done", 5, 5, "earlier"),
        view("waiting", detail="asked"),
        view("running", 3, 9),
        view("done", 9, 9, "it fits"),
    )
    outcome = warm_by_daemon(daemon, "glm", lambda *drawing: drawn.append(drawing), pause)
    assert daemon.posted == [("/v1/warm", {"backend": "glm"})]
    assert (outcome.state, outcome.detail, outcome.done_bytes, outcome.goal_bytes) == ("done", "it fits", 9, 9)
    assert drawn == [(0, 0, "asked"), (3, 9, "")]


def test_what_was_published_before_the_request_does_not_count() -> None:
    daemon = Daemon(view("done", 5, 5, "earlier"))
    frozen = daemon.status()
    answers = iter([frozen, frozen, frozen])
    daemon.status = lambda: next(answers, None) or Daemon.status(daemon)  # type: ignore[method-assign]
    daemon.views = [view("failed", detail="now")]
    assert warm_by_daemon(daemon, "glm", lambda *_: None, pause).detail == "now"


def test_it_was_warm_already() -> None:
    whole = view("done", detail="in memory already", residency=ResidencyView(1000, 900, 100, 0.0))
    assert follow(whole) == ("nothing", "in memory already", 0)


def test_no_room_is_a_failure() -> None:
    assert follow(view("done", detail="there is no free memory")) == ("failed", "there is no free memory", 0)


@pytest.mark.parametrize("state", ["failed", "off"])
def test_it_fails(state: str) -> None:
    assert follow(view(state, 2, 9, "because")) == ("failed", "because", 2)


@pytest.mark.parametrize("gone", [None, view(pid=None)])
def test_the_backend_ends(gone: BackendView | None) -> None:
    assert follow(view("running"), view("running"), gone) == ("failed", "the backend glm has ended", 0)


def test_memory_near_its_limit_is_a_refusal() -> None:
    reason = Reason(
        axis="memory", signal="headroom_bytes", value=1.0, limit=2.0, held_seconds=None, text="headroom 1 B"
    )
    verdict = Verdict("glm", 0.0, memory=MemoryState.NEAR_LIMIT, reasons=(reason,))
    state, detail, _ = follow(view("paused", detail="waits: memory is near its limit", verdict=verdict))
    assert state == "refused"
    assert detail.endswith("headroom 1 B")
    busy = view("paused", detail="waits: the backend itself reads")
    assert follow(busy, busy, busy, view("done", 1, 1))[0] == "done"


def test_unknown_residency_is_told_and_not_waited_for() -> None:
    blind = ResidencyView(unknown="the kernel does not tell")
    state, detail, _ = follow(view("waiting", detail="residency is unknown: the kernel does not tell", residency=blind))
    assert (state, detail) == ("failed", "residency is unknown: the kernel does not tell")
    loading = view("waiting", detail="somebody asked", residency=ResidencyView(unknown="not looked at yet"))
    assert follow(loading, loading, view("done", 1, 1))[0] == "done"


def test_ctrl_c_ends_only_the_waiting() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    outcome = warm_by_daemon(Daemon(view("running", 3, 9)), "glm", interrupt, pause)
    assert (outcome.state, outcome.done_bytes, outcome.goal_bytes) == ("interrupted", 3, 9)
    assert "the daemon goes on" in outcome.detail


def test_a_daemon_that_ends_is_an_error() -> None:
    daemon = Daemon(view("running"))

    def unreachable(*_: object) -> None:
        raise DaemonUnreachable("gone")

    daemon.status = unreachable  # type: ignore[method-assign,assignment]
    with pytest.raises(DaemonUnreachable):
        warm_by_daemon(daemon, "glm", lambda *_: None, pause)


def test_the_backend_with_the_model_by_any_name(tmp_path: Path) -> None:
    model, link = tmp_path / "m.gguf", tmp_path / "link.gguf"
    model.touch()
    link.symlink_to(model)
    snapshot = Daemon(view(model_path=str(link))).status()
    found = backend_with(snapshot, [str(tmp_path / "none.gguf"), str(model)])
    assert found is not None
    assert found.name == "glm"
    assert backend_with(Daemon(view(model_path=str(model), pid=None)).status(), [str(model)]) is None
    for path in (None, "/proc/1/root/none.gguf"):
        assert backend_with(Daemon(view(model_path=path)).status(), [str(model)]) is None


def test_residency_as_the_daemon_sees_it() -> None:
    look = look_of(view())
    assert (look.resident_bytes, look.expert_resident_bytes, look.expert_size_bytes) == (400, 300, 900)
    assert look_of(view(residency=ResidencyView(unknown="why"))).unknown == "why"
    assert look_of(view(layout=None)).expert_resident_bytes is None


def test_a_look_from_before_is_not_taken_for_one_after() -> None:
    old = view(residency=ResidencyView(1, 1, 0, 3600.0))
    assert look_after(Daemon(old, old, view()), "glm", pause).resident_bytes == 400
    assert look_after(Daemon(None), "glm", pause).unknown == "the backend glm has ended"
