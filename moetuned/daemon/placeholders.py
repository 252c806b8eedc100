"""Where what a restart may change of a backend is looked for, by who runs it; for people."""

from __future__ import annotations

from moetuned.daemon.service_supervisor import ServiceSupervisor
from moetuned.daemon.supervisor import Supervisor
from moetuned.schema.supervise import SuperviseCommand, SuperviseContainer, SuperviseUnit

_WORDS = {SuperviseContainer: "supervise.run", SuperviseCommand: "supervise.restart"}


def unknown(supervisor: Supervisor | None) -> str | None:
    """Why it is not known how it runs and what may be changed, a sentence; None: it is known."""
    return supervisor.unknown if isinstance(supervisor, ServiceSupervisor) else None


def where(supervisor: Supervisor, name: str) -> str:
    """Where a placeholder, or what stands for it, is looked for; `name` is one of `host.service.VALUES`."""
    if isinstance(supervisor.config.supervise, SuperviseUnit):
        return f"${{MOETUNED_{name.upper()}}} in {supervisor.who}"
    return f"{{{name}}} in {_WORDS.get(type(supervisor.config.supervise), 'its command')}"


def why_not(supervisor: Supervisor, name: str) -> str:
    """Why a restart cannot change that one, the end of a sentence."""
    reason = unknown(supervisor)
    return f"there is no {where(supervisor, name)}" if reason is None else f"not known: {reason}"
