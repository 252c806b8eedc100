"""Plans carried out on files of the test's own, with a systemctl that only takes notes; what fails leaves what it says it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from status_scenes import no_backends

from moetuned.cli import setup_deeds
from moetuned.cli.backend_adopt import AdoptReport
from moetuned.cli.setup_deeds import DeedError, all_seen, carry_out, take_back
from moetuned.decide.unit_adoption import AdoptionError
from moetuned.host.setup_record import read_record
from moetuned.host.system_file import read_system_file
from moetuned.host.system_program import ProgramError
from moetuned.parse.unit_status import UnitStatus
from moetuned.schema.setup import PlannedDeed, SetupRecord, Step
from moetuned.schema.snapshot import BackendView
from moetuned.schema.verdict import Phase, Verdict


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What systemctl is asked; a unit called broken.service does not start."""
    found: list[str] = []

    def run_program(name: str, arguments: Any, *_: object) -> None:
        found.append(" ".join(arguments[1:]))
        if "broken" in arguments[-1]:
            raise ProgramError("systemctl failed with code 1")

    monkeypatch.setattr(setup_deeds, "run_program", run_program)
    monkeypatch.setattr(setup_deeds, "reload_units", lambda: None)
    monkeypatch.setattr(setup_deeds, "forget", lambda name, _: found.append(f"forget {name}"))
    monkeypatch.setattr(setup_deeds, "remove_unit_state", lambda *_: None)
    monkeypatch.setattr(
        setup_deeds,
        "unit_status",
        lambda unit: UnitStatus(unit, "not-found" if "gone" in unit else "loaded", "active", ""),
    )
    return found


def do(tmp_path: Path, *deeds: PlannedDeed, record: SetupRecord = SetupRecord(files=("x",))) -> list[str]:  # noqa: B008  frozen
    return carry_out(deeds, record, str(tmp_path / "state"), lambda _: None)


def test_files_then_units_then_the_service(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "conf.d/50-setup.yaml"
    done = do(
        tmp_path,
        PlannedDeed(Step.WRITE, str(path), "why", after="new"),
        PlannedDeed(Step.START_BACKEND, "moetuned-backend@glm.service", "why"),
        PlannedDeed(Step.START_SERVICE, "moetuned.service", "why"),
        PlannedDeed(Step.RELOAD_SERVICE, "moetuned.service", "why"),
    )
    assert path.read_text() == "new"
    assert asked == [
        "enable moetuned-backend@glm.service", "reset-failed moetuned-backend@glm.service", "forget glm",
        "restart moetuned-backend@glm.service", "enable moetuned.service", "start moetuned.service", "reload moetuned.service",
    ]  # fmt: skip
    assert len(done) == 4
    assert read_record(str(tmp_path / "state")).files == ("x",)


def test_what_was_edited_is_kept_beside_it(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("edited")
    do(tmp_path, PlannedDeed(Step.WRITE, str(path), "why", before="edited", after="new", edited=True))
    assert path.read_text() == "new"
    assert (tmp_path / "a.yaml.bak").read_text() == "edited"


def test_what_is_kept_has_the_bytes_that_were_there(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "glm.env"
    latin = "# für mich\nPORT=8081\n".encode("latin-1")
    path.write_bytes(latin)
    before = read_system_file(str(path))
    assert before is not None
    do(tmp_path, PlannedDeed(Step.WRITE, str(path), "why", before=before, after="new", edited=True))
    assert (tmp_path / "glm.env.bak").read_bytes() == latin


def test_of_files_all_are_written_or_none(tmp_path: Path, asked: list[str]) -> None:
    (tmp_path / "file").touch()
    first, second = tmp_path / "a.yaml", tmp_path / "file/b.yaml"
    with pytest.raises(DeedError, match="Nothing was changed"):
        do(
            tmp_path,
            PlannedDeed(Step.WRITE, str(first), "why", after="new"),
            PlannedDeed(Step.WRITE, str(second), "why", after="new"),
            PlannedDeed(Step.START_SERVICE, "moetuned.service", "why"),
        )
    assert not first.exists()
    assert asked == []


def test_without_a_record_nothing_is_done(tmp_path: Path, asked: list[str]) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(DeedError, match="cannot be noted"):
        do(tmp_path, PlannedDeed(Step.WRITE, str(tmp_path / "a"), "why", after="new"))
    assert not (tmp_path / "a").exists()


def test_a_step_that_fails_is_named_and_the_record_stays(tmp_path: Path, asked: list[str]) -> None:
    with pytest.raises(DeedError, match=r"could not start broken.service: why: systemctl failed.*setup --undo"):
        do(
            tmp_path,
            PlannedDeed(Step.START_BACKEND, "broken.service", "why"),
            PlannedDeed(Step.START_SERVICE, "moetuned.service", "why"),
        )
    assert asked == ["enable broken.service"]
    assert read_record(str(tmp_path / "state")) == SetupRecord(files=("x",))


def test_what_is_given_up_leaves_the_record(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.env"
    path.write_text("a")
    record = SetupRecord(files=(str(path), "b"), enabled=("old.service", "moetuned.service"))
    do(
        tmp_path,
        PlannedDeed(Step.REMOVE, str(path), "why", before="a"),
        PlannedDeed(Step.STOP_BACKEND, "old.service", "why"),
        record=record,
    )
    assert not path.exists()
    assert read_record(str(tmp_path / "state")) == SetupRecord(files=("b",), enabled=("moetuned.service",))
    assert asked[0] == "disable --now old.service"


def test_all_is_taken_back(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(setup_deeds, "undo_adoption", given_back.append)
    monkeypatch.setattr(
        setup_deeds, "look_at_undo", lambda unit: AdoptReport(unit, "llama", done=False, drop_in="/x/zz.conf")
    )
    directory = tmp_path / "etc/conf.d"
    directory.mkdir(parents=True)
    (directory / "50-setup.yaml").write_text("x")
    do(tmp_path)
    deeds = (
        PlannedDeed(Step.STOP_BACKEND, "moetuned.service", "why"),
        PlannedDeed(Step.STOP_BACKEND, "gone.service", "why"),
        PlannedDeed(Step.REMOVE, str(directory / "50-setup.yaml"), "why", before="x"),
        PlannedDeed(Step.GIVE_BACK, "llama.service", "why"),
    )
    (directory / ".50-setup.yaml.new").write_text("left by one that was killed")
    record = SetupRecord(files=(f"{directory}/50-setup.yaml",), directories=(str(tmp_path / "etc"), str(directory)))
    done = take_back(deeds, record, str(tmp_path / "state"), lambda _: None)
    assert len(done) == 4
    assert not (tmp_path / "etc").exists()
    assert not (tmp_path / "state").exists()
    assert given_back == ["llama.service"]
    assert asked == ["disable --now moetuned.service", "reset-failed moetuned.service"]


def test_what_cannot_be_taken_back_keeps_the_record(tmp_path: Path, asked: list[str]) -> None:
    do(tmp_path)
    with pytest.raises(DeedError, match=r"could not stop and disable broken\.service"):
        take_back(
            (PlannedDeed(Step.STOP_BACKEND, "broken.service", "why"),),
            SetupRecord(),
            str(tmp_path / "state"),
            lambda _: None,
        )
    assert read_record(str(tmp_path / "state")) == SetupRecord(files=("x",))


def test_what_would_be_refused_is_found_out_first(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two units the second one has a drop-in that was edited: the first keeps its own, nothing stops and no file goes."""
    given_back: list[str] = []

    def look(unit: str) -> AdoptReport:
        if unit == "edited.service":
            raise AdoptionError("zz-moetuned.conf was edited since moetuned wrote it. Nothing was changed")
        return AdoptReport(unit, "llama", done=False, drop_in="/x/zz.conf")

    monkeypatch.setattr(setup_deeds, "undo_adoption", given_back.append)
    monkeypatch.setattr(setup_deeds, "look_at_undo", look)
    path = tmp_path / "50-setup.yaml"
    path.write_text("x")
    do(tmp_path)
    deeds = (
        PlannedDeed(Step.GIVE_BACK, "llama.service", "why"),
        PlannedDeed(Step.GIVE_BACK, "edited.service", "why"),
        PlannedDeed(Step.STOP_BACKEND, "moetuned.service", "why"),
        PlannedDeed(Step.REMOVE, str(path), "why", before="x"),
    )
    with pytest.raises(
        DeedError, match=r"give back the unit edited\.service: .* was edited since .* Nothing was changed$"
    ):
        take_back(deeds, SetupRecord(files=(str(path),)), str(tmp_path / "state"), lambda _: None)
    assert (given_back, asked, path.exists()) == ([], [], True)
    assert read_record(str(tmp_path / "state")) == SetupRecord(files=("x",))


def test_what_was_kept_earlier_is_not_written_over(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "50-setup.yaml"
    for text in ("first", "second"):
        path.write_text(text)
        path.chmod(0o600)
        do(tmp_path, PlannedDeed(Step.WRITE, str(path), "why", before=text, after="new", edited=True))
    assert {each.name: each.read_text() for each in tmp_path.glob("50*")} == {
        "50-setup.yaml": "new", "50-setup.yaml.bak": "first", "50-setup.yaml.bak2": "second",
    }  # fmt: skip
    assert {each.stat().st_mode & 0o777 for each in tmp_path.glob("50*")} == {0o600}, "what was hidden stays so"


def test_what_takes_over_from_a_hidden_file_is_hidden(tmp_path: Path, asked: list[str]) -> None:
    do(tmp_path, PlannedDeed(Step.WRITE, str(tmp_path / "c"), "why", after="new", closed=True))
    do(tmp_path, PlannedDeed(Step.WRITE, str(tmp_path / "o"), "why", after="new"))
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "co"] == [0o600, 0o644]


def test_who_has_yet_to_be_told_is_remembered(tmp_path: Path, asked: list[str]) -> None:
    record = SetupRecord(pending=("moetuned-backend@glm.service", "broken.service"))
    told = PlannedDeed(Step.RESTART_BACKEND, "moetuned-backend@glm.service", "why")
    with pytest.raises(DeedError):
        do(tmp_path, told, PlannedDeed(Step.RELOAD_SERVICE, "broken.service", "why"), record=record)
    assert read_record(str(tmp_path / "state")) == record, "all of them once more: that does no harm"
    do(tmp_path, told, record=record)
    assert read_record(str(tmp_path / "state")) == SetupRecord(pending=("broken.service",))


def test_what_an_earlier_restart_gave_it_does_not_go_before_what_was_answered(tmp_path: Path, asked: list[str]) -> None:
    do(tmp_path, PlannedDeed(Step.RESTART_BACKEND, "moetuned-backend@glm.service", "why"))
    assert asked == ["forget glm", "try-restart moetuned-backend@glm.service"]


def test_a_backend_is_seen_once_its_new_process_is() -> None:
    """What the daemon published last may show the process that setup has just had ended, or one found before it is known whose it is."""
    glm = BackendView("glm", "llama-server", Verdict("glm", 0.0, Phase.IDLE), "", pid=7)
    now = msgspec.structs.replace(no_backends(), backends=(glm,))
    assert all_seen(now, ["glm"], {7}.__contains__)
    assert not all_seen(now, ["glm"], {8}.__contains__)
    assert not all_seen(now, ["glm", "other"], {7}.__contains__)
    found = msgspec.structs.replace(glm, name="llama-server-8080", discovered=True)
    assert not all_seen(msgspec.structs.replace(now, backends=(glm, found)), ["glm"], {7}.__contains__)
