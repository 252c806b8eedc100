"""Which manager of backends the config means."""

from __future__ import annotations

from moetuned.host.service import Service
from moetuned.schema.config import Backend


def service_of(config: Backend) -> Service:
    """The manager of this backend. Raises ValueError when moetuned starts it itself, or nobody does."""
    raise ValueError(f"{config.name} has no manager")
