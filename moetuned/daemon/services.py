"""Which manager of backends the config means. What each needs is imported when one is there."""

from __future__ import annotations

from moetuned.decide.launch_command import preferred_plan, values_of
from moetuned.host.service import Service
from moetuned.schema.config import Backend
from moetuned.schema.supervise import SuperviseCommand, SuperviseContainer, SuperviseUnit
from moetuned.schema.units import parse_duration


def service_of(config: Backend, state_directory: str) -> Service:
    """The manager of this backend, which keeps its records in `state_directory`.

    Raises ValueError when moetuned starts it itself, or nobody does.
    """
    preferred = values_of(preferred_plan(config))
    match config.supervise:
        case SuperviseUnit(unit=unit):
            from moetuned.host.systemd_unit import SystemdUnit

            return SystemdUnit(config.name, unit)
        case SuperviseContainer(container=container, run=run, engine=engine):
            from moetuned.host.container import Container
            from moetuned.schema.container import ContainerRecord
            from moetuned.state.service_record import ServiceRecordFile

            containers = ServiceRecordFile(state_directory, f"{engine}-{container}", ContainerRecord())
            return Container(config.name, engine, container, run, config.model, preferred, containers)
        case SuperviseCommand(restart=restart, timeout=timeout):
            from moetuned.host.script_service import Script
            from moetuned.schema.container import ScriptRecord
            from moetuned.state.service_record import ServiceRecordFile

            scripts = ServiceRecordFile(state_directory, f"script-{config.name}", ScriptRecord())
            return Script(config.name, restart, config.model, preferred, scripts, parse_duration(timeout))
    raise ValueError(f"{config.name} has no manager")
