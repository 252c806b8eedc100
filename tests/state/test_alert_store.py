from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moetuned.decide.alert_gate import Gate, Told
from moetuned.decide.alert_queue import Outbox, put
from moetuned.schema.event import Event, EventName
from moetuned.state import alert_store
from moetuned.state.alert_store import KeptSink, forget_others, read, write

EVENT = Event("1-2", EventName.THRASH_BEGIN, 1.0, 2.0, "glm", "It thrashes.")


def kept(kind: str = "webhook") -> KeptSink:
    outbox, _ = put(Outbox(), Told(EVENT, 3), 5.0, sending=False)
    return KeptSink(1, kind, "boot", Gate(told=(("glm", EventName.THRASH_BEGIN),), held=(EVENT,)), outbox)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "alerts")


def test_it_comes_back_as_it_was(directory: str) -> None:
    assert read("webhook", "webhook", directory) == (None, None)
    write("webhook", kept(), directory)
    assert read("webhook", "webhook", directory) == (kept(), None)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(f"{directory}/webhook.json").st_mode) == 0o600
    assert os.listdir(directory) == ["webhook.json"]


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b'{"version":1}', b"\xff\xfe", b'{"version":2,"kind":"a","boot_id":"","gate":{},"outbox":{}}']
)
def test_what_makes_no_sense_is_set_aside(directory: str, text: bytes) -> None:
    write("webhook", kept(), directory)
    Path(directory, "webhook.json").write_bytes(text)
    found, note = read("webhook", "webhook", directory)
    assert found is None
    assert note is not None
    assert "set aside" in note
    assert f"{directory}/webhook.json.bad" in note
    assert Path(directory, "webhook.json.bad").read_bytes() == text
    assert read("webhook", "webhook", directory) == (None, None)


def test_what_cannot_be_read_is_told(directory: str) -> None:
    write("webhook", kept(), directory)
    os.rename(f"{directory}/webhook.json", f"{directory}/elsewhere")
    os.symlink("elsewhere", f"{directory}/webhook.json")
    found, note = read("webhook", "webhook", directory)
    assert found is None
    assert note is not None
    assert "cannot be read" in note
    os.unlink(f"{directory}/webhook.json")
    os.mkfifo(f"{directory}/webhook.json")
    assert "is no plain file of root" in (read("webhook", "webhook", directory)[1] or "")


def test_one_too_large_is_not_read(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("webhook", kept(), directory)
    monkeypatch.setattr(alert_store, "LIMIT_BYTES", 10)
    assert read("webhook", "webhook", directory)[0] is None


def test_what_another_kind_left_is_none_of_it(directory: str) -> None:
    write("phone", kept("ntfy"), directory)
    found, note = read("phone", "webhook", directory)
    assert found is None
    assert note == "the alert sink phone was of kind ntfy: 1 alerts that waited for that are dropped"


def test_sinks_that_no_config_names_are_forgotten(directory: str) -> None:
    assert forget_others({"webhook"}, directory) == []
    for name in ("webhook", "ntfy", "exec"):
        write(name, kept() if name != "exec" else KeptSink(1, "exec", "", Gate(), Outbox()), directory)
    Path(directory, "webhook.json.bad").write_text("x")
    assert forget_others({"webhook"}, directory) == [
        "the config has no alert sink ntfy any more: 1 alerts that waited for it are dropped"
    ]
    assert sorted(os.listdir(directory)) == ["webhook.json", "webhook.json.bad"]
