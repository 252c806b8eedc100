"""What a run of setup does with files that were edited, and with a config that the daemon would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from setup_scenes import CONFIG_PATH, FACTS

from moetuned.cli import setup_run
from moetuned.cli.setup_run import Wanted, run_setup, run_undo
from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.schema.setup import PlannedDeed, SetupPlan, SetupRecord, Step

EDITED = PlannedDeed(Step.WRITE, CONFIG_PATH, "why", before="a", after="b", edited=True)
RELOAD = PlannedDeed(Step.RELOAD_SERVICE, "moetuned.service", "why")


def test_an_edited_file_stays_without_a_word_to_replace_it(capsys: pytest.CaptureFixture[str]) -> None:
    plan = SetupPlan((EDITED, RELOAD))
    left = setup_run._without_refused(plan, Wanted(yes=True))
    assert left.deeds == (), "and nothing is reloaded for it"
    assert "was edited since setup wrote it and stays" in left.notes[0]
    assert "--replace-edited" in capsys.readouterr().err
    assert setup_run._without_refused(plan, Wanted(yes=True, replace_edited=True)).deeds == plan.deeds


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("MOETUNED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(setup_run, "gather", lambda *_: FACTS)
    monkeypatch.setattr(setup_run, "CONFIG_PATH", CONFIG_PATH)
    return tmp_path


def refuse(_: object) -> None:
    raise ConfigError([Problem("50-setup.yaml", "backends", None, "is wrong")])


def test_a_config_that_would_be_refused_is_not_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_run, "load_checked", refuse)
    with pytest.raises(SystemExit) as ended:
        run_setup(Wanted(yes=True))
    said = capsys.readouterr().err
    assert (ended.value.code, "is wrong" in said, "Nothing was written" in said) == (1, True, True)
    assert not (root / "state").exists()


def test_a_config_that_is_wrong_already(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_run, "gather", lambda *_: refuse(None))
    with pytest.raises(SystemExit) as ended:
        run_setup(Wanted(yes=True))
    assert (ended.value.code, "moetunectl config check" in capsys.readouterr().err) == (1, True)


def test_nothing_to_take_back(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(setup_run, "read_system_file", lambda _: None)
    assert run_undo(Wanted(yes=True)) == 0
    assert "Nothing to take back" in capsys.readouterr().out


def test_an_undo_that_only_looks(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_run, "read_system_file", lambda path: "mine\n" if path == CONFIG_PATH else None)
    monkeypatch.setattr(setup_run, "_record", lambda: SetupRecord(adopted=("llama.service",)))
    assert run_undo(Wanted(dry_run=True)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{CONFIG_PATH} was edited since setup wrote it, and stays" in said
    assert "llama.service" in said
