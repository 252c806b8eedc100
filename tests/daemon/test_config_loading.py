"""A config is only good when the machine could take its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.daemon.config_loading import load_checked
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.config import Profile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "moetuned.yaml"


def test_a_good_one(path: Path) -> None:
    path.write_text("tuning: {profile: moe-offload, sysctl: {vm.vfs_cache_pressure: 60}}\n")
    loaded = load_checked(str(path))
    assert loaded.config.tuning.profile is Profile.MOE_OFFLOAD
    assert loaded.files == (str(path),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tuning: {profile: moe-offload, sysctl: {vm.dirty_ratio: 400}}\n", "vm.dirty_ratio"),
        ("tuning: {profile: moe-offload, sysctl: {kernel.panic: 1}}\n", "kernel.panic"),
        ("tuning: {profil: observe}\n", "profil"),
        ("tuning: {sysctl: {vm.dirty_ratio: x}}\n", r"yaml:1: tuning.sysctl.vm.dirty_ratio: 'x' is no whole number"),
        ("backends: [{name: a, kind: llama-srver}]\n", r"backends\[0\].kind: 'llama-srver'.*did you mean llama-server"),
    ],
)
def test_a_bad_one_is_refused_with_the_key(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        load_checked(str(path))
    assert str(path) in str(error.value)


def test_a_missing_one_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_checked(str(path))
