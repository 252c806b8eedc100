"""The container supervisor over a real engine; which facts of it the fake one must have right shows here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.orphan_process import is_stopped
from fakes.real_engine import PEACEFUL, RealEngine, real_engine

from moetuned.host.container import Container
from moetuned.host.engine_cli import asking
from moetuned.host.own_processes import let_on, stop_others
from moetuned.host.processes import ProcessHandle, ProcessIdentity, command_line, identify
from moetuned.host.service import ServiceError
from moetuned.schema.container import ContainerRecord
from moetuned.state.service_record import ServiceRecordFile

pytestmark = pytest.mark.kernel
NAME = f"moetuned-test-{os.getpid()}"


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    with real_engine(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture
def made(engine: RealEngine, tmp_path: Path) -> Iterator[Container]:
    """The container of this test, and none of its names is left afterwards."""
    keeper = ServiceRecordFile(str(tmp_path), f"{engine.name}-{NAME}", ContainerRecord())
    words = (*engine.options, engine.image, "/bin/sh", "-c", PEACEFUL, "server-{context}")
    yield Container("glm", engine.name, NAME, words, None, {}, keeper, asking(engine.command))
    for name in (NAME, f"{NAME}-moetuned-next", f"{NAME}-moetuned-old", f"{NAME}-before-moetuned"):
        engine.run("rm", "--force", name, check=False)


def names(engine: RealEngine) -> list[str]:
    return sorted(engine.run("ps", "--all", "--filter", f"name={NAME}", "--format", "{{.Names}}").split())


def test_made_and_made_anew(engine: RealEngine, made: Container) -> None:
    assert made.look().ended == f"has no container {NAME}"
    made.restart({"context": "2048"})
    first = made.look().pid
    assert first is not None
    assert (command_line(first) or ())[-1] == "server-2048"
    made.restart({"context": "1024"})
    second = made.look().pid
    assert second is not None
    assert second != first
    assert (command_line(second) or ())[-1] == "server-1024"
    assert command_line(first) is None
    assert names(engine) == [NAME]


def test_what_its_first_process_started_in_another_session_is_stopped_with_it(
    engine: RealEngine, made: Container
) -> None:
    script = f"setsid sleep 1000 & {PEACEFUL}"
    engine.run("run", "--detach", "--name", NAME, *engine.options, engine.image, "/bin/sh", "-c", script, "theirs")
    pid = made.look().pid
    assert pid is not None
    main = identify(pid)
    assert main is not None
    for _ in range(1000):  # each time the engine is asked
        if ("sleep", "1000") in commands(made, main):
            break
        engine.run("ps")
    stopped = stop_others(main, lambda: made.hold(main), lambda _identity: None)
    server = next(each for each in stopped if command_line(each.pid) == ("sleep", "1000"))
    assert os.getsid(server.pid) != os.getsid(pid)
    assert is_stopped(server.pid)
    assert not is_stopped(pid)
    let_on(stopped)
    assert not is_stopped(server.pid)


def commands(container: Container, main: ProcessIdentity) -> list[tuple[str, ...] | None]:
    held = container.hold(main)
    try:
        return [command_line(each.identity.pid) for each in held]
    finally:
        for each in held:
            each.close()


def test_the_users_own_is_kept_and_can_be_brought_back(engine: RealEngine, made: Container) -> None:
    engine.run("run", "--detach", "--name", NAME, *engine.options, engine.image, "/bin/sh", "-c", PEACEFUL, "theirs")
    made.restart({"context": "2048"})
    assert names(engine) == [NAME, f"{NAME}-before-moetuned"]
    engine.run("rm", "--force", NAME)
    engine.run("rename", f"{NAME}-before-moetuned", NAME)
    engine.run("start", NAME)
    pid = made.look().pid
    assert pid is not None
    assert (command_line(pid) or ())[-1] == "theirs"


def test_what_does_not_start_gives_way_to_what_was_there(engine: RealEngine, made: Container, tmp_path: Path) -> None:
    made.restart({"context": "2048"})
    keeper = ServiceRecordFile(str(tmp_path), f"{engine.name}-{NAME}", ContainerRecord())
    words = (*engine.options, engine.image, "/absent", "{context}")
    broken = Container("glm", engine.name, NAME, words, None, {}, keeper, asking(engine.command))
    with pytest.raises(ServiceError, match=r"start failed with code .*absent"):
        broken.restart({"context": "1024"})
    pid = made.look().pid
    assert pid is not None
    assert (command_line(pid) or ())[-1] == "server-2048"
    assert names(engine) == [NAME]
    gone = (*engine.options, "localhost/moetuned-no-such-image", "{context}")
    absent = Container("glm", engine.name, NAME, gone, None, {}, keeper, asking(engine.command))
    with pytest.raises(ServiceError, match="was not restarted"):
        absent.restart({"context": "1024"})
    assert made.look().pid == pid


def test_one_that_would_start_at_boot_is_told_not_to_or_left_alone(engine: RealEngine, made: Container) -> None:
    words = (*engine.options, engine.image, "/bin/sh", "-c", PEACEFUL, "theirs")
    engine.run("run", "--detach", "--name", NAME, "--restart", "always", *words)
    if engine.name == "podman" and "--restart" not in engine.run("update", "--help"):
        with pytest.raises(ServiceError, match="would start the container of before again at the next boot"):
            made.restart({"context": "2048"})
        assert names(engine) == [NAME]
        assert made.look().pid is not None
        return
    made.restart({"context": "2048"})
    told = engine.run("inspect", "--format", "{{.HostConfig.RestartPolicy.Name}}", f"{NAME}-before-moetuned")
    assert told.strip() == "no"


def test_ends_are_told(engine: RealEngine, made: Container) -> None:
    made.restart({"context": "2048"})
    running = made.look().pid
    assert running is not None
    main = identify(running)
    assert main is not None
    handle = ProcessHandle(main)
    made.kill(main)
    handle.send(signal.SIGKILL)
    handle.close()
    engine.run("wait", NAME, check=False)
    killed = made.look()
    assert killed.pid is None
    assert killed.ended is not None
    assert killed.ended.startswith("was ended by SIGKILL")
    assert not killed.oom_killed
    engine.run("start", NAME)
    engine.run("stop", "-t", "10", NAME)
    stopped = made.look()
    assert (stopped.pid, stopped.stopped_by_owner) == (None, True)


def test_an_end_by_the_oom_killer_is_nobodys_wish(engine: RealEngine, made: Container, tmp_path: Path) -> None:
    keeper = ServiceRecordFile(str(tmp_path), f"{engine.name}-{NAME}", ContainerRecord())
    words = ("--memory", "20m", *engine.options, engine.image, "/bin/sh", "-c", "exec tail /dev/zero", "{context}")
    hungry = Container("glm", engine.name, NAME, words, None, {}, keeper, asking(engine.command))
    hungry.restart({"context": "2048"})
    engine.run("wait", NAME)
    state = made.look()
    assert state.pid is None
    assert not state.stopped_by_owner
    # Podman with runc on cgroup v1 does not tell it from a SIGKILL of anybody's.
    assert state.oom_killed or (engine.name == "podman" and "OOM killer, unless" in (state.ended or ""))
