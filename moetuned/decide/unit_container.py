"""A unit that only starts the command line of a container engine: `docker run`, `podman run` as its ExecStart=.

What systemd has then is that command. The server is the engine's, in the container's cgroup and below the engine's own processes, so
nothing that is asked of the unit tells which process the backend is. Podman can give systemd the container's monitor instead
(--sdnotify=conmon, as a Quadlet does, or a PID file of it): below that the server is found like below any other main process.
"""

from __future__ import annotations

from collections.abc import Sequence

_ENGINES = ("docker", "podman")
_TOLD_THE_MONITOR = frozenset({"notify", "notify-reload", "forking"})
"""Types of units for which podman says its monitor to systemd, or where a PID file does (podman-run(1), --sdnotify, --conmon-pidfile)."""


def engine_of(argv: Sequence[str]) -> str | None:
    """The engine whose command line this is, "docker" or "podman"; None: of none."""
    name = argv[0].rpartition("/")[2] if argv else ""
    return name if name in _ENGINES else None


def engine_of_unit(argv: Sequence[str], unit_type: str) -> str | None:
    """The engine whose command a unit with this ExecStart= and Type= has as its main process; None: it has another one."""
    engine = engine_of(argv)
    return None if engine == "podman" and unit_type in _TOLD_THE_MONITOR else engine


def instead(unit: str, engine: str) -> str:
    """What its owner can do, one sentence."""
    monitor = (
        ", or make systemd follow the container's monitor (Type=notify and --sdnotify=conmon, as a Quadlet has)"
        if engine == "podman"
        else ""
    )
    return (
        f"{unit} runs the command {engine}, and the server in its container is not systemd's: give moetuned the container "
        f"(supervise: {{by: docker, engine: {engine}, container: …, run: […]}}) and disable {unit}{monitor}"
    )
