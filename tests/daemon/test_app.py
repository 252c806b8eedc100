"""The whole daemon in this process, with a clock that the test moves and a kernel of its own; no backend runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_fakes import FakeClock
from fakes.fake_kernel import FakeKernel, usual_kernel
from running import InProcess, in_process

from moetuned.daemon import alert_delivery
from moetuned.daemon import app as app_module
from moetuned.daemon.workers import Lane
from moetuned.decide import signals
from moetuned.host.durable_file import lock_directory
from moetuned.schema.event import EventName
from moetuned.schema.verdict import Phase

WATCH = {"watch": {"discover": False}}
OFFLOAD = {**WATCH, "tuning": {"profile": "moe-offload"}}
PRESSURE = "/proc/sys/vm/vfs_cache_pressure"


class Rig:
    def __init__(self, daemon: InProcess, clock: FakeClock, kernel: FakeKernel) -> None:
        self.daemon, self.clock, self.kernel = daemon, clock, kernel
        self.app = daemon.app

    def tick(self, times: int = 1, seconds: float = 1.0) -> None:
        for _ in range(times):
            self.clock.now += seconds
            self.daemon.turn(0)

    def reload(self, config: dict | str) -> str | None:
        self.daemon.write(config)
        return self.app.reload()


@contextlib.contextmanager
def rig(directory: Path, config: dict, **environ: str) -> Iterator[Rig]:
    clock, kernel = FakeClock(), usual_kernel()
    with in_process(directory, config, clock=clock, fs=kernel, environ={"NOTIFY_SOCKET": "x", **environ}) as daemon:
        yield Rig(daemon, clock, kernel)


def test_ready_comes_after_the_first_tick(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        assert it.daemon.snapshot.daemon.ticks == 1
        assert it.daemon.sent == [
            "STATUS=no backend is running that moetuned knows",
            "READY=1\nSTATUS=no backend is running that moetuned knows",
        ]


def test_observing_makes_no_journal_and_writes_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        it.tick(100)
        it.daemon.stop()
        assert it.kernel.writes() == []
    assert not (tmp_path / "state").exists()


def test_the_watchdog_is_fed_at_every_tick_and_ticks_come_in_time_for_it(tmp_path: Path) -> None:
    config = {"watch": {"discover": False, "interval": "4s"}}
    with rig(tmp_path, config, WATCHDOG_USEC="3000000") as it:
        it.daemon.sent.clear()
        it.tick(10)
        assert [message.split("\n")[0] for message in it.daemon.sent] == ["WATCHDOG=1"] * 10


def test_signals_are_found_before_files_can_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signals.signal_functions.cache_clear()
    try:
        with rig(tmp_path, WATCH):
            # What pkgutil says of a directory that cannot be opened (EMFILE).
            monkeypatch.setattr(signals.pkgutil, "iter_modules", lambda path: iter(()))
            assert "headroom_bytes" in signals.signal_functions()
    finally:
        signals.signal_functions.cache_clear()


def test_ten_thousand_ticks(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        descriptors = len(os.listdir("/proc/self/fd"))
        it.tick(10_000)
        assert it.daemon.snapshot.daemon.ticks == 10_001
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_every_look_is_remembered_for_ten_minutes(tmp_path: Path) -> None:
    with rig(tmp_path, {**WATCH, "backends": [{"name": "glm"}]}) as it:
        it.tick(700)
        told = it.app._history.told()
        assert told.at_seconds == it.clock.now // 2 * 2
        assert [(one.backend, len(one.phase)) for one in told.backends] == [("glm", 300)]
        assert all(isinstance(state, Phase) for state in told.backends[0].phase)
        it.reload({**WATCH, "backends": [{"name": "other"}]})
        it.tick(2)
        assert [one.backend for one in it.app._history.told().backends] == ["other"]


def test_a_late_tick_is_not_made_up_for(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        it.tick(1, seconds=30)
        assert it.daemon.snapshot.daemon.ticks == 2
        assert it.daemon.snapshot.daemon.tick_lateness_seconds == pytest.approx(29)
        it.tick(3, seconds=0.05)
        assert it.daemon.snapshot.daemon.ticks == 3
        it.tick(3)
        assert it.daemon.snapshot.daemon.ticks == 6


def test_settings_are_applied_and_given_back(tmp_path: Path) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        assert it.kernel.foreign_read(PRESSURE) == "50\n"
        assert {view.state for view in it.daemon.snapshot.tuning} - {"skipped"} == {"applied"}
        it.daemon.stop()
        assert it.kernel.settings() == usual_kernel().settings()
        assert it.daemon.sent[-1].startswith(("STOPPING=1", "STATUS=", "EXTEND"))
        assert any(message.startswith("STOPPING=1") for message in it.daemon.sent)


def test_a_daemon_that_fails_gives_settings_back_too(tmp_path: Path) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        pass
    assert it.kernel.settings() == usual_kernel().settings()


def test_a_good_reload_is_applied_and_announced(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        it.daemon.sent.clear()
        assert it.reload(OFFLOAD) is None
        assert it.kernel.foreign_read(PRESSURE) == "50\n"
        first, last = it.daemon.sent[0], it.daemon.sent[-1]
        assert first.startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert first.rpartition("=")[2].isdigit()
        assert last.startswith("READY=1")
        assert it.reload(WATCH) is None
        assert it.kernel.settings() == usual_kernel().settings()


@pytest.mark.parametrize("bad", ["watch: {intervall: 2s}\n", "{", "tuning: {profile: [1]}\n"])
def test_a_bad_reload_keeps_the_old_config_and_says_so(tmp_path: Path, bad: str) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        problem = it.reload(bad)
        assert problem is not None
        assert str(it.daemon.config_path) in problem
        assert it.kernel.foreign_read(PRESSURE) == "50\n"
        assert it.daemon.sent[-1].startswith("READY=1\nSTATUS=the new config is not used")
        it.tick()
        assert "the new config is not used" in it.daemon.snapshot.notes[0]
        assert it.daemon.snapshot.profile == "moe-offload"
        assert it.reload(OFFLOAD) is None
        it.tick()
        assert it.daemon.snapshot.notes == ()


def test_what_a_reload_cannot_change_is_said(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        it.reload({**WATCH, "api": {"listen": False, "group": "other"}})
        it.tick()
        assert "started again" in it.daemon.snapshot.notes[0]


def test_sighup_reloads(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        it.daemon.write({"watch": {"discover": False}, "relief": {"mode": "act"}})
        os.kill(os.getpid(), signal.SIGHUP)
        it.daemon.turn(5)
        it.tick()
        assert it.daemon.snapshot.mode == "act"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_and_ctrl_c_stop(tmp_path: Path, number: int) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        os.kill(os.getpid(), number)
        it.daemon.turn(5)
        assert not it.daemon.loop._running
        assert it.kernel.settings() == usual_kernel().settings()


def test_while_it_stops_nothing_is_begun(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        it.app.stop()
        assert it.reload(OFFLOAD) == "moetuned is stopping"
        assert it.kernel.writes() == []
        assert it.app._request("warm", {"backend": "glm"})[0] == 409


def test_alerts_on_their_way_get_a_moment_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(alert_delivery, "deliver", lambda _kind, _event, _config: release.wait(20) and [])
    with rig(tmp_path, {**WATCH, "alerts": [{"kind": "exec"}]}) as it:
        it.app._announcer.say(EventName.THRASH_BEGIN, None, "x")
        it.app.stop()
        it.tick(5, seconds=0.5)
        assert it.daemon.loop._running
        it.tick(6, seconds=0.5)
        assert not it.daemon.loop._running
        release.set()


def test_drift_is_an_event(tmp_path: Path) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        it.kernel.foreign_write(PRESSURE, "70")
        it.tick(int(app_module.DRIFT_SECONDS) + 2)
        assert it.daemon.event_names() == ["tuning_drifted"]
        assert "70" in it.daemon.snapshot.events[0].message
        it.daemon.stop()
        assert it.kernel.foreign_read(PRESSURE) == "70\n"


def test_drift_is_believed_at_the_second_look(tmp_path: Path) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        it.tick(int(app_module.DRIFT_SECONDS) - 1)
        it.kernel.foreign_write(PRESSURE, "70")
        it.tick(2)
        assert it.daemon.event_names() == []
        it.kernel.foreign_write(PRESSURE, "50")
        it.tick(4)
        assert it.daemon.event_names() == []


def test_settings_by_hand(tmp_path: Path) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        ours = it.kernel.settings()
        status, answer = it.app._request("tune", {"do": "rollback"})
        assert (status, {view.state for view in answer.tuning}) == (200, {"restored"})
        assert it.kernel.foreign_read(PRESSURE) == "100\n"
        it.tick(int(app_module.DRIFT_SECONDS) + 5)
        assert any("until `moetunectl tune apply`" in note for note in it.daemon.snapshot.notes)
        assert it.daemon.event_names() == []
        status, answer = it.app._request(
            "tune", {"do": "apply", "profile": "moe-offload", "journal": str(it.daemon.journal)}
        )
        assert (status, answer.notes) == (200, ())
        assert it.kernel.settings() == ours
        it.app._request("tune", {"do": "rollback", "config": None})
        assert it.app.reload() is None
        assert it.kernel.settings() == ours
        it.tick(1)
        assert it.daemon.snapshot.notes == ()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"config": "/elsewhere.yaml"}, "moetuned.yaml, not /elsewhere.yaml; edit "),
        ({"profile": "observe"}, "the profile moe-offload, not observe; edit "),
        ({"journal": "/elsewhere/undo.jsonl"}, "it knows nothing of /elsewhere/undo.jsonl"),
    ],
)
def test_what_somebody_means_otherwise_is_refused(tmp_path: Path, asked: dict[str, str], says: str) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        count = len(it.kernel.writes())
        for do in ("apply", "rollback"):
            status, body = it.app._request("tune", {"do": do, **asked})
            assert status == 409
            assert says in body["error"]
        assert len(it.kernel.writes()) == count


def test_who_is_locked_out_refuses_by_hand_and_sets_all_once_the_holder_is_gone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    holder = lock_directory(str(state))
    try:
        with rig(tmp_path, OFFLOAD) as it:
            for do in ("apply", "rollback"):
                status, body = it.app._request("tune", {"do": do})
                assert status == 409
                assert f"another moetuned process holds {state}" in body["error"]
            assert not it.app._swap._holds()
            it.tick(int(app_module.DRIFT_SECONDS) + 1)
            assert it.kernel.writes() == []
            os.close(holder)
            holder = -1
            it.tick(int(app_module.DRIFT_SECONDS) + 1)
            assert it.kernel.foreign_read(PRESSURE) == "50\n"
            assert it.app._swap._holds()
    finally:
        if holder >= 0:
            os.close(holder)


def test_who_follows_what_was_asked_for_does_not_see_what_was_before(tmp_path: Path) -> None:
    with rig(tmp_path, OFFLOAD) as it:
        _, answer = it.app._request("tune", {"do": "rollback"})
        assert it.daemon.snapshot.tuning == answer.tuning


def test_work_that_hangs_is_told(tmp_path: Path) -> None:
    began, release = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        release.wait(20)

    with rig(tmp_path, WATCH) as it:
        it.app._workers.submit(Lane.WORK, "reading the model of glm", hang, lambda *_: None)
        assert began.wait(20)
        it.tick(90)
        assert any("reading the model of glm has been going on for 1 min" in note for note in it.daemon.snapshot.notes)
        release.set()


def test_requests(tmp_path: Path) -> None:
    config = {**WATCH, "backends": [{"name": "glm", "url": "http://127.0.0.1:1"}]}
    with rig(tmp_path, config) as it:
        status, body = it.app._request("warm", {"backend": "other"})
        assert status == 404
        assert "there are: glm" in body["error"]
        assert it.app._request("warm", {"backend": "glm"})[0] == 202
        assert it.app._request("reload", {}) == (200, {"reloaded": True})
        it.daemon.write("{")
        assert it.app._request("reload", {})[0] == 409


def test_a_configured_backend_that_does_not_run_is_shown_without_an_alarm(tmp_path: Path) -> None:
    config = {**WATCH, "backends": [{"name": "glm", "url": "http://127.0.0.1:1"}]}
    with rig(tmp_path, config) as it:
        it.tick(3)
        view = it.daemon.view("glm")
        assert view.verdict.phase == "absent"
        assert "no running process was recognised" in view.sentence
        assert it.daemon.snapshot.events == ()


def test_swap_that_is_not_done_with_at_the_end_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rig(tmp_path, WATCH) as it:
        it.app._swap._busy = True
    assert [each.levelname for each in caplog.records if "tune rollback --alone" in each.message] == ["WARNING"]


def test_looks_are_seldom_while_nothing_runs_and_who_asks_gets_a_new_one(tmp_path: Path) -> None:
    with rig(tmp_path, {"watch": {"discover": False, "idle_interval": "4s"}}) as it:
        it.tick(40)
        seen = it.daemon.snapshot.daemon
        assert (seen.tick_interval_seconds, seen.pressure) == (4.0, "no backend runs")
        it.tick(40)
        assert it.daemon.snapshot.daemon.ticks == seen.ticks + 10
        it.tick(3)
        asked = it.app._fresh_snapshot()
        assert asked is not None
        assert asked.at_seconds == it.clock.now
        ticks = asked.daemon.ticks
        assert it.app._fresh_snapshot() is asked
        it.tick(3)
        assert it.daemon.snapshot.daemon.ticks == ticks
        it.tick(1)
        assert it.daemon.snapshot.daemon.ticks == ticks + 1


def test_a_snapshot_is_made_once_a_look(tmp_path: Path) -> None:
    with rig(tmp_path, WATCH) as it:
        assert it.app.snapshot is it.app.snapshot
        before = it.app.snapshot
        it.tick()
        assert it.app.snapshot is not before
        assert it.app.snapshot.daemon.tick_cpu_seconds > 0
