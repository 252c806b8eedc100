"""A process that is stopped for a while: for a second look, or because somebody asked."""

from __future__ import annotations

import select
from collections.abc import Callable

import pytest
from daemon_fakes import FakeGuard, FakeGuards, FakeProcess
from fakes.orphan_process import Orphans, is_stopped, orphan
from supervisor_rig import COMMAND, SHORT, Rig, backend, ready, supervised_rig  # noqa: F401  a fixture

from moetuned.daemon import pausing, process_supervisor
from moetuned.host.own_scope import scope_name
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.schema.supervise import SuperviseProcess
from moetuned.state import backend_record

__all__ = ["orphan"]


def test_it_is_stopped_for_a_moment_and_not_again_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "PauseGuard", FakeGuard)
    supervisor = ready(rig)
    process = rig.spawn.started[0]
    supervisor.hold()
    supervisor.hold()
    assert (supervisor.held, process.signals) == (True, ["STOP"])
    rig.clock.now += pausing.PAUSE_SECONDS
    supervisor.tick()
    assert (supervisor.held, process.signals) == (False, ["STOP", "CONT"])
    supervisor.hold()
    assert not supervisor.held
    rig.clock.now += pausing.PAUSE_AGAIN_SECONDS
    assert supervisor.pausable
    supervisor.hold()
    supervisor.restart(SHORT)
    assert process.signals == ["STOP", "CONT", "STOP", "KILL", "CONT"], (
        "a stopped process would not hear that it is to end before it grows on"
    )


def test_without_a_guard_it_is_not_stopped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(identity: ProcessIdentity, seconds: float) -> None:
        raise FileNotFoundError("there is no program timeout (coreutils)")

    monkeypatch.setattr(pausing, "PauseGuard", refuse)
    supervisor = ready(rig)
    supervisor.hold()
    assert (supervisor.held, rig.spawn.started[0].signals) == (False, [])


def test_paused_by_hand_it_stays_so_beyond_the_daemon(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.pause_by_hand()
    assert supervisor.paused is None
    supervisor.start()
    process = rig.spawn.started[0]
    supervisor.pause_by_hand()
    since = supervisor.paused_wall_seconds
    assert since == rig.clock.wall()
    assert not supervisor.pausable
    rig.clock.now += 5
    supervisor.pause_by_hand()
    assert supervisor.paused_wall_seconds == since
    supervisor.let_go()
    assert process.signals == ["STOP", "STOP"]
    process = FakeProcess(process.identity.pid, process.argv)
    rig.spawn.adoptable[process.identity] = process
    rig.spawn.started.append(process)
    another = rig.make()
    another.start()
    assert another.paused_wall_seconds == since
    another.resume_by_hand()
    assert (process.signals, another.paused_wall_seconds) == (["CONT"], None)
    record = backend_record.read("glm", rig.directory)
    assert record is not None
    assert record.paused_wall_seconds is None


def test_paused_by_hand_it_can_be_ended_and_restarted(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.pause_by_hand()
    supervisor.restart(SHORT)
    assert rig.spawn.started[0].signals == ["STOP", "TERM", "CONT"]
    rig.end(rig.spawn.started[0], 0)
    assert supervisor.paused_wall_seconds is None


def test_a_restart_that_waits_is_called_off_by_a_pause(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.hear(1, rig.clock.now)
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.pause_by_hand()
    assert not supervisor.draining


def test_paused_by_hand_while_it_is_stopped_for_a_second_look_it_stays_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards = FakeGuards()
    monkeypatch.setattr(pausing, "PauseGuard", guards)
    supervisor = ready(rig)
    supervisor.hold()
    supervisor.pause_by_hand()
    assert guards.made[0].cancelled, "it would be continued when its time is over"
    rig.clock.now += pausing.PAUSE_SECONDS
    supervisor.tick()
    assert (rig.spawn.started[0].signals, guards.made[0].ended) == (["STOP", "STOP"], False)


@pytest.fixture
def server(orphan: Orphans, monkeypatch: pytest.MonkeyPatch) -> ProcessIdentity:
    """What the backend's process started in another session, in a scope that was made for it."""
    server = orphan()

    def hold_own(_main: ProcessIdentity, is_own: Callable[[str], bool]) -> list[ProcessHandle]:
        assert is_own(scope_name("glm"))
        assert not is_own("moetuned.slice")
        return [ProcessHandle(server)]

    monkeypatch.setattr(pausing, "PauseGuard", FakeGuard)
    monkeypatch.setattr(process_supervisor, "hold_own", hold_own)
    return server


@pytest.mark.parametrize(("scope", "stopped"), [(True, True), (False, False)])
def test_what_runs_in_its_scope_is_stopped_with_it(
    rig: Rig, server: ProcessIdentity, *, scope: bool, stopped: bool
) -> None:
    supervisor = rig.make(backend(supervise=SuperviseProcess(command=COMMAND, scope=scope)))
    supervisor.start()
    supervisor.hold()
    assert is_stopped(server.pid) is stopped
    supervisor.let_on()
    assert not is_stopped(server.pid)


def test_what_runs_in_its_scope_is_killed_with_it(rig: Rig, server: ProcessIdentity) -> None:
    """Else it would go on, and grow, once it is continued."""
    supervisor, handle = ready(rig), ProcessHandle(server)
    supervisor.hold()
    assert not handle.ended()
    supervisor.restart(SHORT)
    assert rig.spawn.started[0].signals == ["STOP", "KILL", "CONT"]
    assert select.select([handle.fileno()], [], [], 20.0)[0], "it was not killed"
    handle.close()
