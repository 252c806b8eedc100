"""Which manager of backends the config means."""

from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.daemon.services import service_of
from moetuned.host.container import Container
from moetuned.host.script_service import Script
from moetuned.host.systemd_unit import SystemdUnit
from moetuned.schema.config import Backend, Context
from moetuned.schema.supervise import SuperviseCommand, SuperviseContainer, SuperviseUnit


def test_a_container(tmp_path: Path) -> None:
    config = Backend(
        name="glm",
        supervise=SuperviseContainer(
            container="llama", run=["img", "-c", "{context}", "-np", "{slots}"], engine="podman"
        ),
    )
    service = service_of(config, str(tmp_path))
    assert isinstance(service, Container)
    assert "llama" in service.what
    assert service.settable() == {"context", "slots"}


def test_a_script(tmp_path: Path) -> None:
    config = Backend(
        name="glm", supervise=SuperviseCommand(restart=["/no/such/again", "{context}"]), context=Context(preferred=8192)
    )
    service = service_of(config, str(tmp_path))
    assert isinstance(service, Script)
    assert service.what == "the script /no/such/again"
    assert service.settable() == {"context"}


def test_a_unit(tmp_path: Path) -> None:
    service = service_of(Backend(name="glm", supervise=SuperviseUnit(unit="llama.service")), str(tmp_path))
    assert isinstance(service, SystemdUnit)
    assert service.what == "the unit llama.service"


def test_one_that_nobody_supervises_has_no_manager(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="glm has no manager"):
        service_of(Backend(name="glm"), str(tmp_path))
