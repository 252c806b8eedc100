"""What people are told of who runs a backend and how it was started."""

from __future__ import annotations

from daemon_fakes import FakeClock

from moetuned.daemon.launch_view import launch_view, supervision_view
from moetuned.daemon.process_supervisor import ProcessSupervisor
from moetuned.daemon.watched import Watched
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend
from moetuned.schema.supervise import SuperviseProcess


def found(directory: str | None) -> Watched:
    watched = Watched("llama-server-8080", None, 0.0)
    watched.kind = "llama-server"
    watched.follow_process(ProcessIdentity(10, 1), 0.0)
    watched.cgroup = MemoryCgroup(directory)
    return watched


def supervised(**supervise: str) -> Watched:
    entry = Backend(
        "glm", supervise=SuperviseProcess(command=["s", "-c", "{context}", "-np", "{slots}"], **supervise), slots=2
    )
    watched = Watched("glm", entry, 0.0)
    watched.kind = "llama-server"
    watched.supervisor = ProcessSupervisor(entry, None, FakeClock(), "/nowhere", lambda *_: None)  # type: ignore[arg-type]
    return watched


def test_who_runs_what_is_only_watched() -> None:
    unit = supervision_view(found("/sys/fs/cgroup/system.slice/llama.service"))
    assert (unit.by, unit.who, unit.log) == (
        None, "somebody else, in the unit llama.service", "journalctl -u llama.service",
    )  # fmt: skip
    container = supervision_view(found("/sys/fs/cgroup/system.slice/docker-" + "ab" * 32 + ".scope"))
    assert container.who == "somebody else, in docker container abababababab"
    assert container.log is None
    assert supervision_view(found(None)).who == "somebody else"
    assert supervision_view(Watched("mine", Backend("mine"), 0.0)).who == "nobody that moetuned knows"


def test_a_child_of_the_daemon() -> None:
    view = supervision_view(supervised())
    assert (view.by, view.stage, view.record) == ("process", "stopped", None)
    assert "journalctl -u moetuned" in (view.log or "")
    assert supervision_view(supervised(log="/var/log/glm.log")).log == "/var/log/glm.log"
    assert view.restart_seconds is None
    assert view.restart_source


def test_what_may_be_changed_and_how() -> None:
    changes = {one.name: one for one in launch_view(supervised()).changes}
    assert {name for name, one in changes.items() if one.possible} == {"context", "slots"}
    assert changes["slots"].now == "2"
    assert "{slots}" in changes["slots"].how
    assert "no {checkpoints} in" in changes["checkpoints"].how
    watched = {one.name: one for one in launch_view(found(None)).changes}
    assert not any(one.possible for one in watched.values())
    assert "flag or variable" in watched["context"].how
    assert "nothing is known" in watched["checkpoints"].how


def test_cache_types_are_as_it_was_told() -> None:
    watched = found(None)
    watched.description = BackendDescription(cache_type_k="q8_0", slots=3)
    watched.command = ("llama-server", "--api-key", "***")
    view = launch_view(watched)
    assert (view.cache_type_k, view.cache_type_v, view.slots) == ("q8_0", None, 3)
    assert view.command == ("llama-server", "--api-key", "***")
    assert {one.name: one.now for one in view.changes}["cache_type"] == "q8_0"
