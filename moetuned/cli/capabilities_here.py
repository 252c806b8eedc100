"""The self-test by moetunectl itself, where no daemon answers: for the config that a daemon would read, with the rights of who asks."""

from __future__ import annotations

import os
import time

from moetuned import backends, tunables
from moetuned.api.errors import DaemonError
from moetuned.decide.capabilities import lines_of, rehearsal_facts, turned_off
from moetuned.host.config_files import load_files
from moetuned.host.fs import RealFS
from moetuned.host.rehearsed import rehearsed
from moetuned.host.tuning_targets import find_targets
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.capability import Capabilities
from moetuned.state.undo_journal import default_path


def rehearse_here(runtime_directory: str = "/run/moetuned") -> Capabilities:
    """Takes about half a second. Raises DaemonError where the config cannot be used."""
    try:
        config = load_files(
            None, tunables.known_sysctls(), known_kinds=backends.names(), further=(tunables.check_tuning,)
        ).config
    except ConfigError as error:
        raise DaemonError(f"No daemon answers, and the config cannot be used:\n{error}") from error
    steps, _ = tunables.plan_tuning(RealFS(), config.tuning, find_targets(config))
    state = os.path.dirname(default_path(os.environ.get("MOETUNED_STATE_DIR")))
    try:
        found = rehearsed(rehearsal_facts(config, state, runtime_directory, steps))
    except OSError as error:
        return Capabilities("failed", str(error), "command", time.time())
    return Capabilities("done", "", "command", time.time(), lines_of(turned_off(found)), found)
