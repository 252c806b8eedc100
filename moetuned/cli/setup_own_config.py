"""The config that `moetunectl setup` writes, among the files that are read with it."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from moetuned import backends, tunables
from moetuned.host.config_files import DEFAULT_PATH, LoadedConfig, load_files
from moetuned.schema.config import Config

CONFIG_PATH = "/etc/moetuned/conf.d/50-setup.yaml"


def load_checked(instead: Mapping[str, str | None]) -> Config:
    """The config with these texts in place of files, checked as the daemon does. Raises ConfigError."""
    return _loaded(instead).config


def overruled(text: str) -> tuple[tuple[str, str], ...]:
    """What this text of setup's own file says, and a file that is read after it says otherwise: (key, that file). Raises ConfigError."""
    whole = _loaded({CONFIG_PATH: text})
    later = whole.files[whole.files.index(CONFIG_PATH) + 1 :]
    alone = load_checked({CONFIG_PATH: text, **dict.fromkeys(later)})
    found = []
    for key in yaml.safe_load(text):
        for path in later:
            beside = load_checked({CONFIG_PATH: text, **{each: None for each in later if each != path}})
            if _said(beside, key) != _said(alone, key):
                found.append((key, path))
    return tuple(found)


def _said(config: Config, key: str) -> object:
    match key:
        case "tuning":
            return config.tuning.profile
        case "relief":
            return config.relief.mode
    return getattr(config, key)


def _loaded(instead: Mapping[str, str | None]) -> LoadedConfig:
    return load_files(
        None,
        tunables.known_sysctls(),
        DEFAULT_PATH,
        known_kinds=backends.names(),
        further=(tunables.check_tuning,),
        instead=instead,
    )
