"""Sink `journal`: every event is an entry of systemd's journal, with fields to look for. It is always on and needs no configuration.

An entry has MESSAGE, PRIORITY (3 for critical events, 4 for warnings, 6 else), SYSLOG_IDENTIFIER=moetuned, MOETUNED_EVENT,
MOETUNED_EVENT_ID, MOETUNED_BACKEND (not for events about the machine), MOETUNED_REASONS (a line each) and a MESSAGE_ID for each name of an
event, which never changes: `journalctl MOETUNED_EVENT=thrash_begin`, `journalctl MOETUNED_BACKEND=glm`.

It is one datagram to /run/systemd/journal/socket that never waits. Where systemd runs the daemon this entry stands in place of the line
in the daemon's log, which leads to the same journal: an event is there once. The line is written where the entry could not be: there is no
such socket, or the journal is so far behind that it takes no more; how often that was is told with the next that it takes. A daemon
that is started in a terminal says events there too. MOETUNED_JOURNAL_SOCKET names another socket, for trying; empty: none.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from moetuned.alerts import Runs, SinkResult
from moetuned.decide import alert_text
from moetuned.schema.event import Event, EventName
from moetuned.schema.severity import SEVERITY, Severity

log = logging.getLogger(__name__)

RUNS = Runs.LOOP
SOCKET = "/run/systemd/journal/socket"
VARIABLE = "MOETUNED_JOURNAL_SOCKET"

PRIORITY: Mapping[Severity, int] = {Severity.CRITICAL: 3, Severity.WARNING: 4, Severity.INFO: 6}
"""Levels of syslog(3)."""

MESSAGE_IDS: Mapping[EventName, str] = {
    EventName.THRASH_BEGIN: "31072b7eb8634fc9b56e961da68f51ca",
    EventName.THRASH_END: "ab74ab32f15f4cabb1a997f61ff2d62d",
    EventName.MEMORY_NEAR_LIMIT: "e6626a0191e7464384f07fafd8370fe3",
    EventName.MEMORY_RECOVERED: "3343b4ea22264654a71a998943cb25a7",
    EventName.BACKEND_DOWN: "8b3571ffda09400880e739292f127d9c",
    EventName.BACKEND_OOM_KILLED: "91539ba66ec2468c9a5c3f156183a13f",
    EventName.BACKEND_HUNG: "0910ecdcf29140c2b56e53b6ae2f4506",
    EventName.BACKEND_MODEL_MISSING: "351d896072d14c00a4821602cd2ae4c0",
    EventName.BACKEND_PORT_TAKEN: "6360fdab4aa94dbea31fd4646a048504",
    EventName.BACKEND_CRASH_LOOP: "633c2497fd6e4391965f1417d04fdb5a",
    EventName.BACKEND_RECOVERED: "f2e414a356b34d84b08900e4e7a33804",
    EventName.BACKEND_RESTARTING: "beda9050dbc7448b9232f93f3ac99b42",
    EventName.BACKEND_RESTARTED: "11c218fa57cb4aceba0e9a0692aa236a",
    EventName.BACKEND_NOT_RESTARTED: "19c476a3bc754bf39253fed471167b3f",
    EventName.BACKEND_START_CHANGED: "0729541030984da49598e5535b0f2220",
    EventName.RELIEF_EXHAUSTED: "f265dcd5f5034e50966738780f016df0",
    EventName.CACHE_EVICTED: "1b30b0d0b91c4a149568f4f5dba57b84",
    EventName.TUNING_DRIFTED: "beae51021bb94963ac10a79e26cdf558",
    EventName.DEVICE_UNSUITABLE: "90f333a4fc96409d8f1d9a29c4b28e03",
    EventName.TEST: "5f0dd4cc5a1b44fba8b61f0b52a7a1de",
}
"""MESSAGE_ID of each event (sd-id128(3)). They are documented: none may ever change."""


class Journal:
    """Tells events to the journal. Belongs to the loop's thread; never waits and never raises."""

    def __init__(self, path: str | None = None, *, log_leads_there: bool | None = None) -> None:
        """`path`: the journal's socket; None: the machine's, or what MOETUNED_JOURNAL_SOCKET says. `log_leads_there`: whether what this
        process logs gets into the journal by itself; None: looked up.
        """
        self.path = os.environ.get(VARIABLE, SOCKET) if path is None else path
        self.log_leads_there = stderr_leads_there() if log_leads_there is None else log_leads_there
        self.dropped = 0
        """Events that a journal that runs did not take, since the last that it took."""

    def tell(self, event: Event) -> bool:
        """Write an entry. Returns whether the event needs no line in the log any more, as that leads to the same journal."""
        problem = _put(entry(event), self.path)
        if problem is None and self.dropped:
            log.warning("the journal took no entry for %d events before; their lines are in the log", self.dropped)
            self.dropped = 0
        if isinstance(problem, BlockingIOError):
            self.dropped += 1
        return problem is None and self.log_leads_there


def target(_config: object = None) -> str:
    """The journal's socket."""
    return os.environ.get(VARIABLE, SOCKET)


def send(event: Event, config: object = None) -> list[SinkResult]:
    """Write one entry, for a try by hand. Never waits."""
    path = target(config)
    problem = _put(entry(event), path)
    if problem is None:
        return [SinkResult(path, True, f"written; look at it with: journalctl MESSAGE_ID={MESSAGE_IDS[event.name]}")]
    if isinstance(problem, BlockingIOError):
        return [SinkResult(path, False, "the journal is behind and takes no more now")]
    return [
        SinkResult(
            path, False, f"there is no journal at {path}: {problem.strerror}; events are in the daemon's log only"
        )
    ]


def entry(event: Event) -> bytes:
    """The event in the journal's native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/); bounded, a few KiB."""
    fields = {
        "MESSAGE": f"{event.name}: {alert_text.message(event)}",
        "MESSAGE_ID": MESSAGE_IDS[event.name],
        "PRIORITY": str(PRIORITY[SEVERITY[event.name]]),
        "SYSLOG_IDENTIFIER": "moetuned",
        "MOETUNED_EVENT": event.name.value,
        "MOETUNED_EVENT_ID": alert_text.one_line(event.id, alert_text.TITLE_BYTES),
        "MOETUNED_BACKEND": alert_text.one_line(event.backend or "", alert_text.TITLE_BYTES),
        "MOETUNED_REASONS": alert_text.reasons(event),
    }
    return b"".join(_field(name, value) for name, value in fields.items() if value)


def _field(name: str, value: str) -> bytes:
    data = value.encode("utf-8")
    if "\n" not in value:
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)


def _put(data: bytes, path: str) -> OSError | None:
    """What went wrong. A new socket each time: events are rare, and a journal that was started again is found."""
    if not path:
        return FileNotFoundError(2, "none is wanted")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, path)
    except OSError as error:
        return error
    return None


def stderr_leads_there() -> bool:
    """Whether this process's standard error is the journal's own stream (JOURNAL_STREAM, systemd.exec(5))."""
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
