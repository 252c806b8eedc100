"""Records of started backends."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from moetuned.decide.supervision import LaunchPlan
from moetuned.host.processes import ProcessIdentity
from moetuned.state import backend_record
from moetuned.state.backend_record import BackendRecord, RecordError, WarmBaseline, WarmSpeed

RECORD = BackendRecord(
    name="glm",
    pid=4321,
    start_ticks=99,
    argv=("llama-server", "-c", "8192"),
    context_length=8192,
    boot_id="b",
    prompt_cache_mib=0,
)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "moetuned" / "backends")


def test_written_read_replaced_and_removed(directory: str) -> None:
    assert backend_record.read("glm", directory) is None
    assert backend_record.names(directory) == ()
    backend_record.write(RECORD, directory)
    assert backend_record.read("glm", directory) == RECORD
    other = BackendRecord(name="glm", pid=5, start_ticks=1, argv=(), context_length=1, boot_id="b")
    backend_record.write(other, directory)
    assert backend_record.read("glm", directory) == other
    assert (backend_record.names(directory), os.listdir(directory)) == (("glm",), ["glm.json"])
    backend_record.remove("glm", directory)
    backend_record.remove("glm", directory)
    assert backend_record.read("glm", directory) is None


def test_what_the_next_daemon_cannot_see_is_kept(directory: str) -> None:
    warm = WarmBaseline((WarmSpeed(1, 90.5, 0.0), WarmSpeed(2, 40.0, 1e6, 2e6)), 7 << 30, 6 << 30)
    record = msgspec.structs.replace(RECORD, relief_restarts_at=(1.5, 600.25), warm=warm)
    backend_record.write(record, directory)
    assert backend_record.read("glm", directory) == record


def test_a_record_of_an_earlier_version_has_neither(directory: str) -> None:
    backend_record.write(RECORD, directory)
    path = Path(directory, "glm.json")
    old = msgspec.json.decode(path.read_bytes())
    del old["relief_restarts_at"], old["warm"]
    path.write_bytes(msgspec.json.encode(old))
    assert backend_record.read("glm", directory) == RECORD


def test_only_the_owner_may_read_it(directory: str) -> None:
    backend_record.write(RECORD, directory)
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (directory, f"{directory}/glm.json")]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"name": "glm"}', b"\xff", b'{"name":"glm","pid":"x"}', b'{"name": "glm", "pid": 4321']
)
def test_a_damaged_record_names_its_file(directory: str, text: bytes) -> None:
    backend_record.write(RECORD, directory)
    Path(directory, "glm.json").write_bytes(text)
    with pytest.raises(RecordError, match=r"glm\.json"):
        backend_record.read("glm", directory)


def test_the_record_of_another_is_refused(directory: str) -> None:
    backend_record.write(RECORD, directory)
    os.rename(f"{directory}/glm.json", f"{directory}/other.json")
    with pytest.raises(RecordError, match="glm"):
        backend_record.read("other", directory)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", "x\n", "x" * 64])
def test_a_name_is_never_a_path(directory: str, name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        backend_record.read(name, directory)


def test_a_link_in_place_of_the_file_is_not_followed(directory: str, tmp_path: Path) -> None:
    backend_record.write(RECORD, directory)
    target = tmp_path / "target"
    target.write_text("precious")
    os.symlink(target, f"{directory}/glm.json.new")
    with pytest.raises(OSError, match=r"symbolic|Too many"):
        backend_record.write(RECORD, directory)
    assert target.read_text() == "precious"


def test_a_start_that_was_intended_and_a_restart_that_was_begun_are_kept(directory: str) -> None:
    intended = msgspec.structs.replace(RECORD, pid=None, start_ticks=None, start_word="0" * 32, intended_at=7.5)
    backend_record.write(intended, directory)
    assert backend_record.read("glm", directory) == intended
    ending = msgspec.structs.replace(RECORD, ending=True, next_plan=LaunchPlan(2048, 0, 1), relief_at=7.5)
    backend_record.write(ending, directory)
    assert backend_record.read("glm", directory) == ending


@pytest.mark.parametrize(
    "changes", [{"pid": None}, {"start_ticks": None}, {"pid": None, "start_ticks": None}, {"pid": 1}, {"pid": -7}]
)
def test_a_record_of_no_process_that_could_be_a_backend_is_refused(directory: str, changes: dict) -> None:
    backend_record.write(msgspec.structs.replace(RECORD, **changes), directory)
    with pytest.raises(RecordError, match=r"glm\.json"):
        backend_record.read("glm", directory)


def test_the_process_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ProcessIdentity(77, 5)
    monkeypatch.setattr(backend_record, "find_started", lambda word: (own if word == "0" * 32 else None, ()))
    assert backend_record.process_of(RECORD) == ProcessIdentity(4321, 99)
    intended = msgspec.structs.replace(RECORD, pid=None, start_ticks=None, start_word="0" * 32)
    assert backend_record.process_of(intended) == own
    assert backend_record.process_of(msgspec.structs.replace(intended, start_word="1" * 32)) is None
