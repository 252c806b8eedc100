from __future__ import annotations

import msgspec
import pytest

from moetuned.cli import setup_wait
from moetuned.cli.setup_wait import MOST_SECONDS, wait_for_units
from moetuned.host.service import ServiceError
from moetuned.host.system_program import ProgramError
from moetuned.parse.unit_status import UnitStatus

UP = UnitStatus("a.service", "loaded", "active", "success", main_pid=7, main_started_at=1_000_000, sub_state="running")
LOOP = msgspec.structs.replace(UP, active_state="activating", sub_state="auto-restart", main_code=1, main_status=1)
LOADING = msgspec.structs.replace(UP, active_state="activating", sub_state="start")


class Machine:
    """Units that are seen in these states one after the other, the last one for ever; its clock goes on by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: dict[str, list[UnitStatus | ServiceError]] = {}
        self.journal: dict[str, str] = {}
        self.now = 1.0
        self.drawn: list[str] = []
        monkeypatch.setattr(setup_wait, "unit_status", self.status)
        monkeypatch.setattr(setup_wait, "ask_program", self.ask)

    def status(self, unit: str) -> UnitStatus:
        states = self.states[unit]
        state = states.pop(0) if len(states) > 1 else states[0]
        if isinstance(state, ServiceError):
            raise state
        return state

    def ask(self, _: str, arguments: tuple[str, ...], *__: object) -> str:
        if "broken" in self.journal:
            raise ProgramError("no journal")
        return self.journal.get(arguments[-1], "")

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self) -> dict[str, str]:
        return wait_for_units(tuple(self.states), self.drawn.append, lambda: self.now, self.sleep)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_one_that_stays_is_waited_for(machine: Machine) -> None:
    machine.states["a.service"] = [LOADING, UP]
    assert machine.wait() == {}
    assert 6.0 <= machine.now < 7.0
    assert machine.drawn[0] == "waiting for a.service to stay up"


def test_one_that_is_started_again_and_again(machine: Machine) -> None:
    machine.states = {"a.service": [UP, UP, LOOP], "b.service": [UP]}
    machine.journal["_SYSTEMD_UNIT=a.service"] = "loading\nerror: unknown flag --x\n\n"
    assert machine.wait() == {
        "a.service": "a.service does not stay up: it ended with code 1. The last in its journal: error: unknown flag --x"
    }


def test_what_systemd_said_where_it_said_nothing_itself(machine: Machine) -> None:
    machine.states["a.service"] = [msgspec.structs.replace(LOOP, active_state="failed")]
    machine.journal["UNIT=a.service"] = "x" * 1000
    (why,) = machine.wait().values()
    assert why.endswith("x" * 300 + "…")
    machine.journal["broken"] = ""
    (why,) = machine.wait().values()
    assert why == "a.service does not stay up: it ended with code 1"


def test_one_that_loads_for_long_is_not_called_broken(machine: Machine) -> None:
    machine.states["a.service"] = [LOADING]
    assert machine.wait() == {}
    assert MOST_SECONDS <= machine.now - 1.0 < MOST_SECONDS + 1


def test_one_that_nothing_is_known_of_is_left_out(machine: Machine) -> None:
    machine.states["a.service"] = [ServiceError("systemd does not say")]
    assert (machine.wait(), machine.now) == ({}, 1.0)
