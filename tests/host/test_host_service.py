"""What is asked of a service manager: every value that a restart may change is one of a plan, and those there are answer to it."""

from __future__ import annotations

import inspect

import pytest

from moetuned.decide.supervision import LaunchPlan
from moetuned.host.service import VALUES, Service, ServiceError, ServiceState
from moetuned.host.systemd_unit import SystemdUnit


def test_what_a_restart_may_change_is_what_a_plan_has() -> None:
    fields = [name.removesuffix("_length") for name in LaunchPlan.__struct_fields__]
    assert list(VALUES) == fields


@pytest.mark.parametrize("kind", [SystemdUnit])
def test_a_service_has_every_part_of_the_interface(kind: type[Service]) -> None:
    for name in (name for name in vars(Service) if not name.startswith("_")):
        asked, there = inspect.getattr_static(Service, name), inspect.getattr_static(kind, name)
        assert isinstance(there, property) == isinstance(asked, property)
        if not isinstance(asked, property):
            assert list(inspect.signature(there).parameters) == list(inspect.signature(asked).parameters)


def test_of_a_state_only_the_process_must_be_known() -> None:
    assert ServiceState(None) == ServiceState(
        None, changing=False, ended=None, stopped_by_owner=False, oom_killed=False
    )
    assert issubclass(ServiceError, OSError)
