from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator

import pytest
from fakes.sink_events import event, hostile
from hypothesis import given
from hypothesis import strategies as st

from moetuned.alerts import journal
from moetuned.alerts.journal import Journal, entry
from moetuned.schema.event import EventName
from moetuned.schema.severity import SEVERITY, Severity


class Listener:
    """What journald is to a process: a datagram socket."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(10)

    def take(self) -> dict[str, str]:
        return read_entry(self.socket.recv(1 << 20))


@pytest.fixture
def listener(tmp_path) -> Iterator[Listener]:
    listener = Listener(str(tmp_path / "socket"))
    yield listener
    listener.socket.close()


def read_entry(data: bytes) -> dict[str, str]:
    """The fields of an entry, read as the protocol's description says."""
    fields: dict[str, str] = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = int.from_bytes(data[:8], "little")
            value, data = data[8 : 8 + length], data[8 + length :]
            assert data[:1] == b"\n"
            data = data[1:]
        assert re.fullmatch(rb"[A-Z][A-Z0-9_]{0,63}", name)
        assert name.decode() not in fields
        fields[name.decode()] = value.decode()
    return fields


def test_an_entry_has_what_it_is_looked_for_by(listener: Listener) -> None:
    assert Journal(listener.path, log_leads_there=True).tell(event())
    assert listener.take() == {
        "MESSAGE": "thrash_begin: glm thrashes: close firefox",
        "MESSAGE_ID": "31072b7eb8634fc9b56e961da68f51ca",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "moetuned",
        "MOETUNED_EVENT": "thrash_begin",
        "MOETUNED_EVENT_ID": "0006a0b1c2d3e4-000001",
        "MOETUNED_BACKEND": "glm",
        "MOETUNED_REASONS": "refaults 90 %",
    }


def test_the_machine_is_no_backend() -> None:
    fields = read_entry(entry(event(EventName.TUNING_DRIFTED, backend=None, reasons=())))
    assert "MOETUNED_BACKEND" not in fields
    assert "MOETUNED_REASONS" not in fields


@pytest.mark.parametrize(
    ("severity", "priority"), [(Severity.CRITICAL, "3"), (Severity.WARNING, "4"), (Severity.INFO, "6")]
)
def test_the_priority_is_how_bad_it_is(severity: Severity, priority: str) -> None:
    names = [name for name in EventName if SEVERITY[name] is severity]
    assert {read_entry(entry(event(name)))["PRIORITY"] for name in names} == {priority}


def test_every_event_has_an_id_of_its_own_that_never_changes() -> None:
    assert set(journal.MESSAGE_IDS) == set(EventName)
    assert len(set(journal.MESSAGE_IDS.values())) == len(EventName)
    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in journal.MESSAGE_IDS.values())
    # Somebody's units and scripts look for these.
    assert journal.MESSAGE_IDS[EventName.BACKEND_DOWN] == "8b3571ffda09400880e739292f127d9c"
    assert journal.MESSAGE_IDS[EventName.DEVICE_UNSUITABLE] == "90f333a4fc96409d8f1d9a29c4b28e03"


def test_several_reasons_are_several_lines_of_one_field() -> None:
    reason = event().reasons[0]
    assert read_entry(entry(event(reasons=(reason, reason))))["MOETUNED_REASONS"] == "refaults 90 %\nrefaults 90 %"


def test_hostile_texts_add_no_field() -> None:
    plain = read_entry(entry(event()))
    fields = read_entry(entry(hostile()))
    assert set(fields) == set(plain)
    assert fields["PRIORITY"] == plain["PRIORITY"]


@given(st.text(), st.text(), st.text())
def test_any_event_makes_a_bounded_entry(message: str, backend: str, identifier: str) -> None:
    data = entry(event(message=message, backend=backend, id=identifier))
    assert len(data) < 8192
    assert read_entry(data)["MOETUNED_EVENT"] == "thrash_begin"


def test_where_the_log_is_on_a_terminal_the_line_stays(listener: Listener) -> None:
    assert not Journal(listener.path, log_leads_there=False).tell(event())
    assert listener.take()["MOETUNED_EVENT"] == "thrash_begin"


@pytest.mark.parametrize("path", ["/nonexistent/socket", "", "/" + "x" * 200])
def test_without_a_journal_the_line_stays(path: str) -> None:
    teller = Journal(path, log_leads_there=True)
    assert not teller.tell(event())
    assert teller.dropped == 0


def test_nobody_listens_any_more(tmp_path) -> None:
    listener = Listener(str(tmp_path / "socket"))
    listener.socket.close()
    assert not Journal(listener.path, log_leads_there=True).tell(event())


def test_a_full_socket_drops_counts_and_says_so_later(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    listener.socket.setblocking(False)
    teller = Journal(listener.path, log_leads_there=True)
    told = 0
    while teller.tell(event()):
        told += 1
        assert told < 100_000
    assert not teller.tell(event())
    assert teller.dropped == 2
    for _ in range(told):
        listener.take()
    with caplog.at_level(logging.WARNING):
        assert teller.tell(event(EventName.THRASH_END))
    assert "the journal took no entry for 2 events before" in caplog.text
    assert teller.dropped == 0
    assert listener.take()["MOETUNED_EVENT"] == "thrash_end"


def test_the_socket_can_be_named(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOETUNED_JOURNAL_SOCKET", listener.path)
    assert Journal().path == listener.path
    (result,) = journal.send(event())
    assert (result.target, result.ok) == (listener.path, True)
    assert "journalctl MESSAGE_ID=31072b7eb8634fc9b56e961da68f51ca" in result.detail
    assert listener.take()["MESSAGE"] == "thrash_begin: glm thrashes: close firefox"


def test_a_try_says_why_nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOETUNED_JOURNAL_SOCKET", "/nonexistent/socket")
    (result,) = journal.send(event())
    assert not result.ok
    assert "there is no journal at /nonexistent/socket" in result.detail


def test_whether_the_log_leads_to_the_journal_is_asked_of_the_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    assert journal.stderr_leads_there()
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino + 1}")
    assert not journal.stderr_leads_there()
    monkeypatch.delenv("JOURNAL_STREAM")
    assert not journal.stderr_leads_there()
