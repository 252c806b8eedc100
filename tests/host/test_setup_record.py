"""What setup made is known the next time, and a record that cannot be understood is not taken for none."""

from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.host.setup_record import NAME, only_one, read_record, remove_unit_state, write_record
from moetuned.schema.setup import SetupRecord

RECORD = SetupRecord(("/etc/x",), ("llama.service",), ("moetuned.service",), ("/etc/moetuned",))


def test_it_is_read_back_and_goes_with_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    assert read_record(str(directory)) == SetupRecord()
    write_record(str(directory), RECORD)
    assert (directory / NAME).stat().st_mode & 0o777 == 0o600
    assert read_record(str(directory)) == RECORD
    write_record(str(directory), SetupRecord())
    assert not directory.exists()
    write_record(str(directory), SetupRecord())


def test_a_directory_with_more_in_it_stays(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    write_record(str(directory), RECORD)
    (directory / "undo.jsonl").touch()
    write_record(str(directory), SetupRecord())
    assert [each.name for each in directory.iterdir()] == ["undo.jsonl"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', "\x00"])
def test_rubbish_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ValueError, match=r"setup.json cannot be understood"):
        read_record(str(tmp_path))


def test_what_systemd_keeps_for_a_unit_goes(tmp_path: Path) -> None:
    """As systemd makes it for a dynamic user: a link to a directory below private."""
    for name in ("glm", "qwen"):
        (tmp_path / "private/moetuned-backends" / name).mkdir(parents=True)
        (tmp_path / "moetuned-backends").mkdir(exist_ok=True)
        (tmp_path / "moetuned-backends" / name).symlink_to(f"../private/moetuned-backends/{name}")
    (tmp_path / "private/moetuned-backends/glm/slot").touch()
    remove_unit_state("glm", str(tmp_path))
    assert [each.name for each in (tmp_path / "private/moetuned-backends").iterdir()] == ["qwen"]
    remove_unit_state("qwen", str(tmp_path))
    remove_unit_state("qwen", str(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["private"]
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="is no name of a backend"):
            remove_unit_state(name, str(tmp_path))


def test_one_at_a_time(tmp_path: Path) -> None:
    directory = str(tmp_path / "state")
    with only_one(directory):
        with pytest.raises(BlockingIOError), only_one(directory):
            pass
        with pytest.raises(BlockingIOError), only_one(directory):
            pass
    (tmp_path / "state.lock").touch()  # of one that was killed
    with only_one(directory):
        pass
    assert list(tmp_path.iterdir()) == []
