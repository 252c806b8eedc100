"""Units that start the command of a container engine."""

from __future__ import annotations

import pytest

from moetuned.decide.unit_container import engine_of, engine_of_unit, instead

DOCKER = ("/usr/bin/docker", "run", "--name", "llama", "image", "-c", "4096")
PODMAN = ("podman", "run", "--sdnotify=conmon", "image")


@pytest.mark.parametrize(
    ("argv", "engine"),
    [
        (DOCKER, "docker"),
        (PODMAN, "podman"),
        (("/usr/bin/conmon", "--api-version", "1"), None),
        (("/opt/llama-server", "-m", "docker"), None),
        (("/usr/bin/docker/llama-server",), None),
        ((), None),
    ],
)
def test_whose_command_line_it_is(argv: tuple[str, ...], engine: str | None) -> None:
    assert engine_of(argv) == engine


@pytest.mark.parametrize(
    ("argv", "unit_type", "engine"),
    [
        (DOCKER, "", "docker"),
        (DOCKER, "notify", "docker"),
        (PODMAN, "simple", "podman"),
        (PODMAN, "notify", None),
        (PODMAN, "forking", None),
    ],
)
def test_podman_can_tell_systemd_its_monitor(argv: tuple[str, ...], unit_type: str, engine: str | None) -> None:
    assert engine_of_unit(argv, unit_type) == engine


def test_what_to_do_instead() -> None:
    assert "supervise: {by: docker, engine: docker," in instead("llama.service", "docker")
    assert "disable llama.service" in instead("llama.service", "docker")
    assert "conmon" not in instead("llama.service", "docker")
    assert "engine: podman" in instead("llama.service", "podman")
    assert "--sdnotify=conmon" in instead("llama.service", "podman")
