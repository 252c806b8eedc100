"""The config as the daemon needs it: read, checked, and its settings known to be ones that the kernel could take."""

from __future__ import annotations

from moetuned import backends, tunables
from moetuned.host.config_files import LoadedConfig, load_files


def load_checked(path: str | None) -> LoadedConfig:
    """The config of `path` (None: the default files). Raises ConfigError with all that is wrong, values of settings too."""
    return load_files(path, tunables.known_sysctls(), known_kinds=backends.names(), further=(tunables.check_tuning,))


def mode_line(loaded: LoadedConfig, *, act: bool) -> str:
    """What the daemon may do with this config, for its log."""
    files = ", ".join(loaded.files) or "no config file"
    profile = loaded.config.tuning.profile.value
    settings = "settings are left alone" if profile == "observe" else f"settings of profile {profile}"
    relief = "relief may restart backends" if act else "relief only says what it would do"
    return f"with {files}: {settings}, {relief}"
