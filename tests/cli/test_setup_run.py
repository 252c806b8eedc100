"""What a run of setup does with files that were edited, and with a config that the daemon would refuse."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest
from setup_scenes import CONFIG_PATH, FACTS

from moetuned.cli import setup_run
from moetuned.cli.backend_adopt import AdoptReport
from moetuned.cli.setup_deeds import DeedError
from moetuned.cli.setup_run import Wanted, run_setup, run_undo
from moetuned.decide.unit_adoption import AdoptionError
from moetuned.host.setup_record import only_one
from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.parse.config_text import load
from moetuned.schema.config import Backend
from moetuned.schema.setup import Candidate, PlannedDeed, SetupPlan, SetupRecord, SetupReport, Step, Way
from moetuned.schema.supervise import SuperviseUnit

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
    refuse_all()


def refuse_all(*_: object) -> None:
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


def test_what_a_later_file_would_overrule_is_not_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_run, "load_checked", lambda _: None)
    monkeypatch.setattr(setup_run, "overruled", lambda _: (("alerts", "/etc/moetuned/conf.d/alerts.yaml"),))
    with pytest.raises(SystemExit) as ended:
        run_setup(Wanted(yes=True))
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert "mv /etc/moetuned/conf.d/alerts.yaml /etc/moetuned/conf.d/40-alerts.yaml" in " ".join(said.split())
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


def test_two_at_a_time(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with only_one(str(root / "state")):
        for run in (run_setup, run_undo):
            with pytest.raises(SystemExit) as ended:
                run(Wanted(yes=True))
            assert (ended.value.code, "another moetunectl setup runs" in capsys.readouterr().err) == (4, True)


def test_a_unit_that_is_for_something_else_is_only_watched(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that a job of cron's started is in cron.service, which moetuned must not restart."""

    def refuse_unit(*_: object, **__: object) -> None:
        raise AdoptionError("cron.service runs cron")

    monkeypatch.setattr(setup_run, "adopt_unit", refuse_unit)
    one = Candidate(
        "cron", Way.UNIT, "unit", unit="cron.service", kind="llama-server", url="http://127.0.0.1:8099", runs=True
    )
    facts = msgspec.structs.replace(FACTS, candidates=(one,))
    answers = setup_run._answers(facts, Wanted(yes=True))
    plan = setup_run._plan(facts, answers, SetupRecord())
    (text,) = [deed.after for deed in plan.deeds if deed.target == CONFIG_PATH]
    assert text is not None
    assert "http://127.0.0.1:8099" in text
    assert "supervise" not in text
    assert "preferred:" not in text
    assert any("only watches it" in note for note in plan.notes)
    # The same the next time, and once it can be adopted it is.
    (entry,) = load([(CONFIG_PATH, text)]).backends
    again = msgspec.structs.replace(
        facts,
        candidates=(msgspec.structs.replace(one, entry=entry),),
        config_text=text,
        current=load([(CONFIG_PATH, text)]),
    )
    answers = setup_run._answers(again, Wanted(yes=True))
    assert not [deed for deed in setup_run._plan(again, answers, SetupRecord()).deeds if deed.step is Step.WRITE]
    with monkeypatch.context() as patch:
        patch.setattr(
            setup_run, "adopt_unit", lambda *_, **__: AdoptReport("cron.service", "cron", done=False, drop_in="/x")
        )
        plan = setup_run._plan(again, answers, SetupRecord())
    assert any("unit: cron.service" in (deed.after or "") for deed in plan.deeds)
    # What was set up earlier stays as it is, for a drop-in that somebody edited.
    entry = Backend("cron", supervise=SuperviseUnit("cron.service"))
    facts = msgspec.structs.replace(facts, candidates=(msgspec.structs.replace(one, entry=entry),))
    plan = setup_run._plan(facts, answers, SetupRecord())
    assert any("unit: cron.service" in (deed.after or "") for deed in plan.deeds)


def fails(*_: object) -> list[str]:
    raise DeedError("could not start moetuned.service: it is broken", ["write /etc/x"])


@pytest.mark.parametrize("name", ["gather", "load_checked", "carry_out", "take_back", "read_system_file", "locked"])
def test_json_is_printed_whatever_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def cannot(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(setup_run, "load_checked", lambda _: None)
    monkeypatch.setattr(setup_run.setup_deeds, "check_writable", lambda _: None)
    monkeypatch.setattr(setup_run.setup_deeds, "carry_out", fails)
    monkeypatch.setattr(setup_run.setup_deeds, "take_back", fails)
    if name in ("gather", "load_checked"):
        monkeypatch.setattr(setup_run, name, refuse_all)
    if name in ("take_back", "read_system_file"):
        monkeypatch.setattr(setup_run, "_record", lambda: SetupRecord(enabled=("a.service",)))
        monkeypatch.setattr(setup_run, "read_system_file", cannot if name == "read_system_file" else lambda _: None)
    run = run_undo if name in ("take_back", "read_system_file") else run_setup
    held = only_one(str(root / "state")) if name == "locked" else contextlib.nullcontext()
    with held, pytest.raises(SystemExit) as ended:
        run(Wanted(yes=True, as_json=True))
    out, err = capsys.readouterr()
    report = msgspec.json.decode(out, type=SetupReport)
    assert ended.value.code == (4 if name == "locked" else 1)
    assert report.error
    assert report.error.splitlines()[-1] in err
    assert ("is wrong" in report.error) == (name in ("gather", "load_checked"))
    assert report.done == (("write /etc/x",) if name in ("carry_out", "take_back") else ())


def test_json_of_an_answer_that_cannot_be_taken(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_setup(Wanted(given={"relief": "perhaps"}, yes=True, as_json=True))
    report = msgspec.json.decode(capsys.readouterr().out, type=SetupReport)
    assert ended.value.code == 2
    assert "--relief: perhaps is none of them" in (report.error or "")
    assert report.candidates == FACTS.candidates
