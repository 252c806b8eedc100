from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from moetuned.host import bounded_program
from moetuned.host.script_service import Script
from moetuned.host.service import ServiceError, ServiceState
from moetuned.schema.container import ScriptRecord
from moetuned.state.service_record import ServiceRecordFile

PREFERRED = {"context": "8192", "slots": "4"}


def keeper(directory: Path) -> ServiceRecordFile[ScriptRecord]:
    return ServiceRecordFile(str(directory / "state"), "script-glm", ScriptRecord())


def script(directory: Path, text: str, *arguments: str, timeout_seconds: float = 60, **more: object) -> Script:
    path = directory / "restart"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    command = (str(path), *(arguments or ("{context}", "--slots={slots}", "{model}")))
    kept = more.pop("keeper", keeper(directory))
    return Script("glm", command, "/m.gguf", PREFERRED, kept, timeout_seconds, **more)  # type: ignore[arg-type]


def test_it_gets_the_values_in_its_words_and_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/x")
    one = script(tmp_path, f'echo "$@" >{tmp_path}/words; env >{tmp_path}/env')
    assert one.settable() == {"context", "slots"}
    one.restart({"context": "2048"})
    assert (tmp_path / "words").read_text() == "2048 --slots=4 /m.gguf\n"
    told = set((tmp_path / "env").read_text().splitlines())
    assert {"MOETUNED_CONTEXT=2048", "MOETUNED_SLOTS=4", "MOETUNED_MODEL=/m.gguf", "MOETUNED_BACKEND=glm"} <= told
    assert not any(line.startswith("NOTIFY_SOCKET") for line in told)


def test_what_is_not_named_stays_also_for_the_next_daemon(tmp_path: Path) -> None:
    script(tmp_path, "exit 0").restart({"context": "2048", "slots": "1"})
    script(tmp_path, f'echo "$@" >{tmp_path}/words').restart({"context": "1024"})
    assert (tmp_path / "words").read_text() == "1024 --slots=1 /m.gguf\n"
    assert keeper(tmp_path).read() == ScriptRecord({"context": "1024", "slots": "1"})


def test_one_that_fails_is_quoted_and_its_values_are_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    script(tmp_path, "exit 0").restart({"context": "2048"})
    with pytest.raises(ServiceError, match=f"the script {tmp_path}/restart ended with code 3: no such unit"):
        script(tmp_path, "echo trying; echo no such unit >&2; exit 3").restart({"context": "1024"})
    assert keeper(tmp_path).read().values["context"] == "2048"
    assert keeper(tmp_path).read().trying is None
    assert "glm: restart: trying" in caplog.text


def test_of_a_run_that_was_interrupted_the_values_are_taken(tmp_path: Path) -> None:
    keeper(tmp_path).write(ScriptRecord({"context": "2048", "slots": "4"}, {"context": "2048", "slots": "1"}))
    script(tmp_path, f'echo "$@" >{tmp_path}/words').restart({"context": "1024"})
    assert (tmp_path / "words").read_text() == "1024 --slots=1 /m.gguf\n"


def test_what_it_is_run_with_is_on_disk_before(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    script(tmp_path, f"cp {kept.path} {tmp_path}/seen").restart({"context": "2048"})
    assert '"trying":{"context":"2048"' in (tmp_path / "seen").read_text()


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_program, "TERM_SECONDS", 0.1)
    one = script(tmp_path, "echo waiting; sleep 600", timeout_seconds=0.5)
    with pytest.raises(ServiceError, match=r"longer than 0\.5 s and was ended: waiting"):
        one.restart({"context": "2048"})


def test_one_ended_by_a_signal(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="was ended by a signal"):
        script(tmp_path, "kill -9 $$").restart({"context": "2048"})


@pytest.mark.parametrize("what", ["restart", "."])
def test_one_that_others_can_write_is_not_run(tmp_path: Path, what: str) -> None:
    one = script(tmp_path, f"touch {tmp_path}/ran")
    (tmp_path / what).chmod(0o777)
    with pytest.raises(ServiceError, match=r"is not run: .* can be written by others than root"):
        one.restart({"context": "2048"})
    assert not (tmp_path / "ran").exists()


def test_a_link_that_others_could_turn_is_not_followed(tmp_path: Path) -> None:
    one = script(tmp_path, f"touch {tmp_path}/ran")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "link").symlink_to(tmp_path / "restart")
    one = Script("glm", (f"{open_to_all}/link", "{context}"), None, PREFERRED, keeper(tmp_path), 60)
    with pytest.raises(ServiceError, match="can be written by others"):
        one.restart({"context": "2048"})
    assert not (tmp_path / "ran").exists()


def test_one_that_is_not_there_and_one_that_is_no_program(tmp_path: Path) -> None:
    one = script(tmp_path, "exit 0")
    os.chmod(tmp_path / "restart", 0o644)
    with pytest.raises(ServiceError, match="could not be run: Permission denied"):
        one.restart({"context": "2048"})
    os.unlink(tmp_path / "restart")
    with pytest.raises(ServiceError, match="cannot be run: No such file"):
        one.restart({"context": "2048"})


def test_values_that_are_none_are_refused(tmp_path: Path) -> None:
    one = script(tmp_path, f"touch {tmp_path}/ran", "{context}")
    for values in ({"slots": "1"}, {"context": "-rf /"}):
        with pytest.raises(ValueError, match="cannot be given"):
            one.restart(values)
    with pytest.raises(ServiceError, match="nobody says which checkpoints"):
        script(tmp_path, f"touch {tmp_path}/ran", "{checkpoints}").restart({})
    assert not (tmp_path / "ran").exists()


def test_what_cannot_be_recorded_is_not_run(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    kept.write(ScriptRecord())
    Path(kept.path).write_text("[")
    with pytest.raises(ServiceError, match=r"was not run: what it was last run with cannot be told: .* is damaged"):
        script(tmp_path, f"touch {tmp_path}/ran").restart({"context": "2048"})
    assert not (tmp_path / "ran").exists()


def test_it_tells_no_process(tmp_path: Path) -> None:
    one = script(tmp_path, "exit 0")
    assert one.look() == ServiceState(None, pid_known=False)
    assert not one.told_to_end
