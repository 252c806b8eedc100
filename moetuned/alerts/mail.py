"""Sink `mail`: one mail for each event, through the sendmail program of this machine (Postfix, Exim, msmtp-mta, dma, nullmailer, …).

The subject is the machine's name and a few words, the text is the event's sentence, the reasons, the time and which command shows more.
What belongs together is one thread in a mail program: the mails about a backend going down and coming back, say. Mails are marked
`Auto-Submitted: auto-generated`, so no holiday notice answers them.

The program is run as the daemon's user with `-i`, `-f` and the address of `from` where that is set, `--`, and the recipients; no shell is between,
and headers hold no line break. It runs as root: it, and every directory above it, must belong to root and be writable by nobody else. An exit
code that says that it was called wrongly, does not know the user or may not send (64, 65, 67, 77 or 78 of sysexits.h) ends the delivery; any
other, such as 75, is tried again later.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from moetuned.alerts import Runs, SinkResult
from moetuned.decide import alert_text
from moetuned.host.bounded_program import SYSTEM_PATH, printable_lines, run_bounded
from moetuned.host.trusted_path import distrust
from moetuned.schema.alert import MailAlert
from moetuned.schema.event import Event, begun_by, has_end
from moetuned.schema.severity import SEVERITY
from moetuned.schema.units import parse_duration

if TYPE_CHECKING:
    from email.message import EmailMessage

RUNS = Runs.CHILD
KEPT = True
_ENVIRONMENT = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
_FOR_GOOD = frozenset({os.EX_USAGE, os.EX_DATAERR, os.EX_NOUSER, os.EX_NOPERM, os.EX_CONFIG})


def target(config: MailAlert) -> str:
    """The recipients."""
    return ", ".join(config.to)


def send(event: Event, config: MailAlert) -> list[SinkResult]:
    """Give one mail to the program. Never raises because of what that does."""
    started = time.monotonic()
    ok, detail, retry = _send(event, config)
    return [SinkResult(target(config), ok, detail, time.monotonic() - started, retry=retry)]


def _send(event: Event, config: MailAlert) -> tuple[bool, str, bool]:
    """Whether it went well, one sentence, and whether to try again."""
    program = config.program
    try:
        if (problem := distrust(program)) is not None:
            return False, f"{program} is not run: {problem}", False
        mail = bytes(compose(event, config, socket.gethostname()))
        options = ["-i", *(["-f", config.sender] if config.sender else []), "--", *config.to]
        end = run_bounded([program, *options], _ENVIRONMENT, parse_duration(config.timeout), mail, outside=True)
    except FileNotFoundError:
        return False, f"there is no program {program}; install one that sends mail, e.g. msmtp-mta or postfix", False
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return False, f"{program} could not be run: {why}", True
    said = " ".join(printable_lines(end.output)[:3])
    words = f": {said}" if said else ""
    if end.timed_out:
        return False, f"{program} took longer than {config.timeout} and was ended{words}", True
    if end.exit_code == 0:
        return True, f"{program} took the mail to {target(config)}", False
    how = "was ended by a signal" if end.exit_code is None else f"ended with code {end.exit_code}"
    return False, f"{program} {how}{words}", end.exit_code not in _FOR_GOOD


def compose(event: Event, config: MailAlert, machine: str) -> EmailMessage:
    """The mail, with nothing in its headers that the event could add to them."""
    from email.message import EmailMessage
    from email.policy import EmailPolicy
    from email.utils import format_datetime

    host = re.sub(r"[^A-Za-z0-9.-]", "-", machine)[:100] or "localhost"
    mail = EmailMessage(policy=EmailPolicy())
    if config.sender is not None:
        mail["From"] = config.sender
    mail["To"] = ", ".join(config.to)
    mail["Subject"] = f"[{host}] {alert_text.title(event)}"
    mail["Date"] = format_datetime(_time(event))
    # The same event keeps its id when it is sent again, so that a mail program shows it once.
    mail["Message-ID"] = f"<moetuned-{_word(event.id)}@{host}>"
    # What begins and its end answer the same mail, which there never was: a thread for each backend and matter.
    matter = (*(begun_by(event.name) if has_end(event.name) else event.closes), *begun_by(event.name))[0]
    mail["References"] = f"<moetuned-{_word(event.backend or 'machine')}-{matter}@{host}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Moetuned-Event"] = event.name.value
    mail["X-Moetuned-Severity"] = SEVERITY[event.name].value
    mail.set_content(_text(event, host), charset="utf-8", cte="quoted-printable")
    return mail


def _text(event: Event, host: str) -> str:
    why = alert_text.reasons(event)
    about = alert_text.one_line(event.backend or "the machine", alert_text.TITLE_BYTES)
    at = _time(event).isoformat(sep=" ", timespec="seconds")
    parts = [
        alert_text.message(event),
        f"Why:\n{why}" if why else "",
        f"Event: {event.name}\nAbout: {about}\nMachine: {host}\nTime: {at}",
        "More: moetunectl status, moetunectl events",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _word(text: str) -> str:
    """Fit for a message id."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:100]


def _time(event: Event) -> datetime:
    try:
        return datetime.fromtimestamp(event.wall_seconds, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
