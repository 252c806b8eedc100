"""Sink `desktop`: a notification on the desktop of everybody who is logged in, through their session's bus.

Told is each user who has a bus at /run/user/UID/bus and something there that shows notifications: all with a user id of 1000 or more, or those
named in `users`. The program that speaks to the bus (busctl of systemd, else notify-send) runs as that user with that user's groups; root
speaks to no user's bus. A daemon that is not root's tells its own user only.

Critical events stay on the screen until they are dismissed. The end of something takes the place of the notification that told of it, as
long as it is known which that was: with busctl, until the daemon or the desktop is started again; else it is a quiet notification of its
own. Texts are data: markup in them is shown as it is written. Where nobody is logged in that is said in the log, and nothing is kept for later.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence

import msgspec

from moetuned.alerts import Runs, SinkResult
from moetuned.decide import alert_text
from moetuned.host.bounded_program import Ended, printable_lines, run_bounded
from moetuned.host.program_search import find_program
from moetuned.host.run_identity import Identity
from moetuned.schema.alert import DesktopAlert
from moetuned.schema.event import ENDS, Event, EventName, begun_by
from moetuned.schema.severity import SEVERITY, Severity
from moetuned.schema.units import parse_duration

RUNS = Runs.THREAD
RUN_USER = "/run/user"
FIRST_USER_ID = 1000
"""UID_MIN of login.defs(5): below are the system's own users, a greeter's among them."""
NOBODY = 65534
MAX_USERS = 16
BODY_BYTES = 1000

_NOTIFICATIONS = ("org.freedesktop.Notifications", "/org/freedesktop/Notifications", "org.freedesktop.Notifications")
_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
_URGENCY: Mapping[Severity, str] = {Severity.INFO: "low", Severity.WARNING: "normal", Severity.CRITICAL: "critical"}
_LEVELS = {"low": "0", "normal": "1", "critical": "2"}
_ICONS: Mapping[Severity, str] = {
    Severity.INFO: "dialog-information",
    Severity.WARNING: "dialog-warning",
    Severity.CRITICAL: "dialog-error",
}


class Session(msgspec.Struct, frozen=True):
    """A user's bus. `mark` is another one when the bus was started again."""

    user: str
    identity: Identity
    directory: str
    mark: tuple[int, int]


class Shown(msgspec.Struct, frozen=True):
    """A notification on somebody's screen: its number means something to this server on this bus only."""

    number: int
    server: str
    mark: tuple[int, int]


class _UnableError(Exception):
    """Nothing shows notifications there; the text says why."""


_shown: dict[tuple[int, str | None, EventName], Shown] = {}
"""Of each user: what is on the screen about a backend and a matter. Lost with the daemon; a few entries."""


def target(config: DesktopAlert) -> str:
    """Whom it tells."""
    return ", ".join(config.users) or "everybody who is logged in"


def send(event: Event, config: DesktopAlert, run_user: str = RUN_USER) -> list[SinkResult]:
    """Tell each user. Never raises because of what is on their buses; one that hangs takes no other's time."""
    found = sessions(config.users, run_user)
    if not found:
        who = f"none of {', '.join(config.users)}" if config.users else "nobody"
        return [SinkResult(target(config), False, f"{who} is logged in to a desktop: nothing is shown")]
    program = find_program("busctl") or find_program("notify-send")
    if program is None:
        return [
            SinkResult(
                target(config), False, "there is neither busctl nor notify-send; install systemd or libnotify-bin"
            )
        ]
    share = parse_duration(config.timeout) / len(found)
    results = [_tell(event, session, program, share) for session in found]
    # Somebody who is logged in over ssh has a bus and no desktop: worth a word only where nobody saw it, or who was named did not.
    told = [result for result in results if result.ok]
    return results if config.users or not told else told


def sessions(users: Sequence[str], run_user: str = RUN_USER) -> list[Session]:
    """Users who have a bus of their own, at most 16; of `users` alone where there are any, whatever their ids are."""
    own = os.geteuid()
    found = []
    for name in sorted(_names(run_user)):
        uid = int(name)
        if (own not in (0, uid)) or (not users and own == 0 and (uid < FIRST_USER_ID or uid == NOBODY)):
            continue
        with contextlib.suppress(OSError, KeyError):
            account = pwd.getpwuid(uid)
            bus = os.lstat(f"{run_user}/{name}/bus")
            if (users and account.pw_name not in users) or not stat.S_ISSOCK(bus.st_mode) or bus.st_uid != uid:
                continue
            groups = () if own != 0 else tuple(os.getgrouplist(account.pw_name, account.pw_gid))
            identity = Identity(uid, account.pw_gid, groups)
            found.append(Session(account.pw_name, identity, f"{run_user}/{name}", (bus.st_dev, bus.st_ino)))
    return found[:MAX_USERS]


def _names(run_user: str) -> list[str]:
    try:
        return [name for name in os.listdir(run_user) if re.fullmatch(r"0|[1-9][0-9]{0,9}", name)]
    except OSError:
        return []


def _tell(event: Event, session: Session, program: str, seconds: float) -> SinkResult:
    started = time.monotonic()
    until = started + seconds
    try:
        if program.endswith("busctl"):
            _tell_by_bus(event, session, program, until)
        else:
            _tell_by_command(event, session, program, until)
    except (_UnableError, OSError, ValueError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        detail = f"{session.user} could not be shown {event.name}: {why}"
        return SinkResult(session.user, False, detail, time.monotonic() - started)
    return SinkResult(session.user, True, f"{session.user} was shown {event.name}", time.monotonic() - started)


def _tell_by_bus(event: Event, session: Session, program: str, until: float) -> None:
    """Raises what `_run` raises."""

    def call(place: Sequence[str], method: str, *arguments: str) -> str:
        # After "--" no text is an option: busctl looks for options everywhere.
        return _run([program, "--user", "--", "call", *place, method, *arguments], session, until)

    can = call(_NOTIFICATIONS, "GetCapabilities")
    server = call(_BUS, "GetNameOwner", "s", _NOTIFICATIONS[0])
    uid = session.identity.user
    keys = [(uid, event.backend, begun) for begun in (*begun_by(event.name), *event.closes)]
    known = [shown for key in keys if (shown := _shown.pop(key, None)) is not None]
    known = [shown for shown in known if (shown.server, shown.mark) == (server, session.mark)]
    severity = SEVERITY[event.name]
    body = alert_text.cut(alert_text.message(event), BODY_BYTES)
    answer = call(
        _NOTIFICATIONS, "Notify", "susssasa{sv}i", "moetuned", str(known[0].number if known else 0), _ICONS[severity],
        alert_text.title(event), _escaped(body) if '"body-markup"' in can.split() else body,
        "0", "1", "urgency", "y", _LEVELS[_URGENCY[severity]], "-1",
    )  # fmt: skip
    for rest in known[1:]:  # one end of two things: one notification stays
        with contextlib.suppress(_UnableError):
            call(_NOTIFICATIONS, "CloseNotification", "u", str(rest.number))
    if event.name not in ENDS and (match := re.fullmatch(r"u ([0-9]{1,10})", answer)) is not None:
        _shown[keys[0]] = Shown(int(match[1]), server, session.mark)


def _tell_by_command(event: Event, session: Session, program: str, until: float) -> None:
    """Raises what `_run` raises."""
    severity = SEVERITY[event.name]
    body = _escaped(alert_text.cut(alert_text.message(event), BODY_BYTES))
    options = ["--app-name=moetuned", f"--urgency={_URGENCY[severity]}", f"--icon={_ICONS[severity]}"]
    _run([program, *options, "--", alert_text.title(event), body], session, until)


def _run(command: Sequence[str], session: Session, until: float) -> str:
    """What it printed. Raises _UnableError with what it complained of, OSError and subprocess.SubprocessError."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise _UnableError("it took too long")
    environment = {
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "XDG_RUNTIME_DIR": session.directory,
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={session.directory}/bus",
    }
    identity = session.identity if os.geteuid() == 0 else None
    end: Ended = run_bounded(
        command, environment, seconds, limit_bytes=4096, errors_apart=True, identity=identity, outside=True
    )
    if end.timed_out:
        raise _UnableError("it took too long")
    if end.exit_code != 0:
        raise _UnableError(" ".join(printable_lines(end.errors)[:1]) or "it failed and said nothing")
    return end.output.decode("utf-8", "replace").strip()


def _escaped(text: str) -> str:
    """As markup that shows the text as it is (Desktop Notifications Specification, "Markup")."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
