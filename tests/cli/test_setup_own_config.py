from pathlib import Path

import pytest

from moetuned.cli import setup_own_config


def test_what_a_later_file_says_otherwise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "conf.d/50-setup.yaml"
    own.parent.mkdir()
    monkeypatch.setattr(setup_own_config, "DEFAULT_PATH", str(tmp_path / "moetuned.yaml"))
    monkeypatch.setattr(setup_own_config, "CONFIG_PATH", str(own))
    for name, text in {
        "10-first": "tuning: {profile: observe}\nrelief: {mode: act}\n",
        "alerts": "alerts: [{kind: desktop}]\n",
        "glm": "backends: [{name: glm}]\nrelief: {cool_down: 5m}\n",
        "swap": "tuning: {profile: moe-offload}\n",
    }.items():
        (own.parent / f"{name}.yaml").write_text(text)
    text = (
        "tuning: {profile: moe-offload}\nrelief: {mode: observe}\nbackends: [{name: glm}, {name: qwen}]\nalerts: []\n"
    )
    assert setup_own_config.overruled(text) == (
        ("backends", str(own.parent / "glm.yaml")),
        ("alerts", str(own.parent / "alerts.yaml")),
    )
    assert setup_own_config.overruled("tuning: {profile: moe-offload}\n") == (), "what it does not say is nobody's"
    assert setup_own_config.overruled("backends: [{name: glm}]\n") == ()
