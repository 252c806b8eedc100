from __future__ import annotations

import os
import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetuned.schema.container import ContainerChange, ContainerRecord, ScriptRecord
from moetuned.state.service_record import LIMIT_BYTES, ServiceRecordError, ServiceRecordFile

NONE = ContainerRecord()
CHANGE = ContainerChange("t", ("image", "-c", "1"), {"context": "1"}, "ab", old_own=True)


def file(tmp_path, empty=NONE, name="docker-llama"):
    return ServiceRecordFile(str(tmp_path / "state"), name, empty)


def test_what_was_written_is_read_by_the_next_and_for_root_only(tmp_path):
    record = ContainerRecord("t", {"context": "1"}, change=CHANGE)
    kept = file(tmp_path)
    assert kept.read() == ContainerRecord()
    kept.write(record)
    assert file(tmp_path).read() == record
    assert stat.S_IMODE(os.stat(kept.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(kept.path)).st_mode) == 0o700
    assert os.listdir(os.path.dirname(kept.path)) == ["docker-llama.json"]


def test_two_have_files_of_their_own(tmp_path):
    script = file(tmp_path, ScriptRecord(), "script-glm")
    script.write(ScriptRecord({"context": "2"}, {"context": "1"}))
    assert file(tmp_path).read() == ContainerRecord()
    assert script.read().trying == {"context": "1"}


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "x" * 200])
def test_a_name_is_no_path(tmp_path, name):
    with pytest.raises(ValueError, match="is no name of a record"):
        file(tmp_path, name=name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.binary(min_size=1, max_size=300))
def test_what_is_damaged_is_said_so_with_the_path(tmp_path, text):
    kept = file(tmp_path)
    kept.write(ContainerRecord())
    with open(kept.path, "wb") as damaged:
        damaged.write(b"[" + text)
    with pytest.raises(ServiceRecordError, match=r"docker-llama\.json is damaged"):
        kept.read()


def test_a_link_and_a_file_without_end_are_not_read(tmp_path):
    kept = file(tmp_path)
    kept.write(ContainerRecord())
    with open(kept.path, "ab") as grown:
        grown.truncate(LIMIT_BYTES + 1)
    with pytest.raises(OSError, match="larger than"):
        kept.read()
    os.unlink(kept.path)
    os.symlink("/etc/hostname", kept.path)
    with pytest.raises(OSError, match="symbolic links"):
        kept.read()


def test_where_it_cannot_be_written_what_was_there_stays(tmp_path, monkeypatch):
    kept = file(tmp_path)
    kept.write(ContainerRecord("t"))

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kept.write(ContainerRecord("u"))
    assert kept.read() == ContainerRecord("t")
    assert os.listdir(os.path.dirname(kept.path)) == ["docker-llama.json"]
