"""The manual entry of a setting on this machine. What it shows over the fake kernel is tested with the other subcommands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.fake_kernel import usual_kernel

from moetuned import tunables
from moetuned.cli import tune_explain, tune_options, tune_rivals


@pytest.fixture(autouse=True)
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = usual_kernel()
    for module in (tune_explain, tune_options, tune_rivals):
        monkeypatch.setattr(module, "RealFS", lambda _root: fake)


def entries(root: Path, *arguments: str) -> list[dict[str, str | None]]:
    result = CliRunner().invoke(
        tune_explain.explain, [*arguments, "--json", "--root", str(root)], catch_exceptions=False
    )
    assert result.exit_code == 0
    found: list[dict[str, str | None]] = json.loads(result.stdout)
    return found


def test_every_setting_has_its_risk_and_its_reason_not_to(tmp_path: Path) -> None:
    found = entries(tmp_path)
    assert len(found) == len(tunables.module_names())
    assert all(entry["why"] and entry["risk"] and entry["not_when"] and entry["source"] for entry in found)


def test_a_computed_value_says_how_and_why_there_is_none_here(tmp_path: Path) -> None:
    (entry,) = entries(tmp_path, "vm.swappiness")
    assert "133 where all is compressed in RAM" in (entry["computed"] or "")
    assert "no swap is on, so it has no effect" in (entry["wanted"] or "")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("memory_low", "no backend of the config has memory_low"),
        ("memory_min", "of the config has memory_min"),
        ("scheduler", "no backend of the config has a model"),
    ],
)
def test_a_setting_of_something_that_is_not_there(tmp_path: Path, key: str, why: str) -> None:
    assert why in (entries(tmp_path, key)[0]["now"] or "")


def test_an_unknown_setting_is_named_with_those_there_are(tmp_path: Path) -> None:
    result = CliRunner().invoke(tune_explain.explain, ["vm.nonsense", "--root", str(tmp_path)])
    assert result.exit_code == 2
    assert "vm.nonsense: moetuned does not know this setting; it knows" in result.stderr
