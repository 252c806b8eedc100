from __future__ import annotations

import inspect

import msgspec
import pytest

from moetuned.decide.supervision import LaunchPlan
from moetuned.host.container import Container
from moetuned.host.script_service import Script
from moetuned.host.service import VALUES, Service
from moetuned.host.systemd_unit import SystemdUnit
from moetuned.parse.config_backend_check import PLACEHOLDERS


def test_what_a_restart_may_change_is_what_a_plan_has_and_a_config_can_say() -> None:
    assert {"model", *VALUES} == set(PLACEHOLDERS)
    assert len(VALUES) == len(msgspec.structs.fields(LaunchPlan))


@pytest.mark.parametrize("kind", [Container, Script, SystemdUnit])
def test_each_kind_answers_all_that_is_asked(kind: type) -> None:
    for name, asked in vars(Service).items():
        if not name.startswith("_") and inspect.isfunction(asked):
            assert inspect.signature(getattr(kind, name)) == inspect.signature(asked)
    assert isinstance(kind.what, property)
