"""The config as the daemon needs it: read, checked, and its settings known to be ones that the kernel could take."""

from __future__ import annotations

from moetuned import tunables
from moetuned.host.config_files import LoadedConfig, load_files
from moetuned.host.fs import HostFS, RealFS
from moetuned.parse.config_problem import ConfigError, Problem

_REAL = RealFS()


def load_checked(path: str | None, fs: HostFS = _REAL) -> LoadedConfig:
    """The config of `path` (None: the default files). Raises ConfigError with all that is wrong, values of settings too."""
    loaded = load_files(path, tunables.known_sysctls())
    _steps, problems = tunables.plan_tuning(fs, loaded.config.tuning)
    if problems:
        file = loaded.files[-1] if loaded.files else ""
        raise ConfigError(Problem(file, "", None, problem) for problem in problems)
    return loaded
