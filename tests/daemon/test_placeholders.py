"""Where what a restart may change is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon import snapshot_view
from moetuned.daemon.launch_view import launch_view
from moetuned.daemon.loop import Loop
from moetuned.daemon.placeholders import unknown, where, why_not
from moetuned.daemon.relieving import relief_facts
from moetuned.daemon.service_supervisor import LOOK_SECONDS, ServiceSupervisor
from moetuned.daemon.settings import settings_of
from moetuned.daemon.watched import Watched
from moetuned.host.service import ServiceError, ServiceState
from moetuned.schema.config import Backend, Config
from moetuned.schema.supervise import Supervise, SuperviseCommand, SuperviseContainer, SuperviseUnit


class Manager:
    """One that says nothing until the engine is there."""

    what = "the manager"

    told_to_end = True

    def __init__(self) -> None:
        self.problem: str | None = "there is no program docker"

    def look(self) -> ServiceState:
        if self.problem is not None:
            raise ServiceError(self.problem)
        return ServiceState(None)

    def settable(self) -> frozenset[str]:
        return frozenset({"context"})

    def restart(self, values: Mapping[str, str]) -> None:
        raise AssertionError(values)

    def kill(self) -> None:
        raise AssertionError


def watched_by(directory: Path, supervise: Supervise) -> tuple[Watched, ServiceSupervisor, HeldWorkers, Manager]:
    workers, manager, clock = HeldWorkers(), Manager(), FakeClock()
    entry = Backend("glm", supervise=supervise)
    watched = Watched("glm", entry, 0.0)
    supervisor = ServiceSupervisor(
        entry, Loop(clock), clock, str(directory), lambda *_: None, workers, manager  # type: ignore[arg-type]
    )  # fmt: skip
    watched.supervisor = supervisor
    return watched, supervisor, workers, manager


@pytest.mark.parametrize(
    ("supervise", "place"),
    [
        (SuperviseUnit(unit="llama.service"), "${MOETUNED_SLOTS} in the manager"),
        (SuperviseContainer(container="llama", run=["image"]), "{slots} in supervise.run"),
        (SuperviseCommand(restart=["/bin/restart"]), "{slots} in supervise.restart"),
    ],
)
def test_what_a_manager_does_not_tell_is_not_said_to_be_missing(
    tmp_path: Path, supervise: Supervise, place: str
) -> None:
    watched, supervisor, workers, manager = watched_by(tmp_path, supervise)
    supervisor.start()
    assert why_not(supervisor, "context") == "not known: the manager was not asked about yet"
    workers.finish("asking about", really=True)
    why = "not known: there is no program docker"
    assert {each.how for each in launch_view(watched).changes} == {why}
    facts = relief_facts(watched, settings_of(Config()))
    assert facts.unset["context"] == why
    assert snapshot_view._state(watched) == "unknown"

    manager.problem = None
    supervisor._clock.now += LOOK_SECONDS  # type: ignore[attr-defined]
    supervisor.tick()
    workers.finish("asking about", really=True)
    assert unknown(supervisor) is None
    assert where(supervisor, "slots") == place
    assert why_not(supervisor, "slots") == f"there is no {place}"
    assert "context" not in relief_facts(watched, settings_of(Config())).unset
    assert snapshot_view._state(watched) == "stopped"
