"""Runs other people's programs as they would run without the daemon's unit: as a unit of their own, started by the service manager.

The daemon's unit restricts the daemon and whatever it starts itself (no new privileges, few capabilities, system calls filtered, a /tmp of
its own): a sendmail that is setgid, podman, or somebody's script would fail in there in ways that nobody expects. systemd-run(1) starts
them from the manager instead, with pipes of ours and the environment that they were to get. It is a wrapper of the command: whoever waits for
it waits for systemd-run, which ends when they end.

The environment goes through a file of root's alone (EnvironmentFile=, 0600): a unit's properties and a process's arguments are there for
everybody to read. How the program ended is left in another by ExecStopPost=, since systemd-run's own exit code mixes up an end by a signal,
one by a code, and a unit that could not be started.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
from collections.abc import Mapping, Sequence

import msgspec

from moetuned.host.outside_remains import DIRECTORY
from moetuned.host.program_search import ENVIRONMENT, find_program
from moetuned.host.run_identity import Identity
from moetuned.host.systemd_booted import is_booted
from moetuned.host.unit_states import ask_manager
from moetuned.parse.environment_file import in_double_quotes

log = logging.getLogger(__name__)

SPARE_SECONDS = 15.0
"""The manager ends a program that nobody watches any more so much later than its deadline."""
STOP_SECONDS = 150.0
"""At a stop: what the daemon has (TimeoutStopSec= of its unit), and what ending the program takes."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SERVICE = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.service")
_END = re.compile(r"(exited|killed|dumped) ([A-Z0-9+-]{1,12})\n")
_RUNNING = (b"activating", b"active", b"deactivating", b"reloading")
_ADDED = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_NUMERIC",
    "LC_TIME",
    "LC_COLLATE",
    "LC_MONETARY",
    "LC_MESSAGES",
    "LC_PAPER",
    "LC_NAME",
    "LC_ADDRESS",
    "LC_TELEPHONE",
    "LC_MEASUREMENT",
    "LC_IDENTIFICATION",
    "HOME",
    "LOGNAME",
    "USER",
    "SHELL",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
]
"""What systemd may add to a service's environment (systemd.exec(5))."""

_said: set[str] = set()


class End(msgspec.Struct, frozen=True):
    """How a program ended. `exit_code` None: by a signal."""

    exit_code: int | None


class Outside:
    """One run of a program: what is to be run in its place, and what became of it. `close` it at the end."""

    def __init__(self, unit: str, directory: str, argv: list[str]) -> None:
        """Use `leave`."""
        self.unit = unit
        self.argv = argv
        self.environment = ENVIRONMENT
        """What systemd-run itself gets."""
        self._directory = directory

    def signal(self, number: int) -> None:
        """Send a signal to all that runs in the unit. Blocks for at most 10 s."""
        ask_manager("kill", f"--signal={signal.Signals(number).name}", "--", self.unit)

    def runs(self) -> bool:
        """Whether the unit runs, also where systemd-run is gone. Blocks for at most 10 s."""
        said = ask_manager("show", "--value", "--property=ActiveState", "--", self.unit)
        return said is not None and said.strip() in _RUNNING

    def end(self) -> End | None:
        """How the program ended, once systemd-run has; None: it was never started.

        203: the manager could not execute it (systemd.exec(5), EXIT_EXEC), or it ended with that code itself.
        """
        try:
            with open(f"{self._directory}/end", encoding="ascii", errors="replace") as file:
                match = _END.fullmatch(file.read(100))
        except OSError:
            return None
        if match is None:
            return None
        how, what = match.groups()
        return End(int(what) if how == "exited" and what.isdecimal() else None)

    def close(self) -> None:
        """Remove what the run needed. Never raises."""
        for name in ("environment", "end"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._directory}/{name}")
        with contextlib.suppress(OSError):
            os.rmdir(self._directory)


def can_leave() -> bool:
    """Whether programs are to be run by the service manager: it is asked where root's daemon is a service of a booted systemd."""
    return own_service() is not None and os.geteuid() == 0 and is_booted() and find_program("systemd-run") is not None


def own_service(path: str = "/proc/self/cgroup", environ: Mapping[str, str] | None = None) -> str | None:
    """The system's service that this process belongs to; None: none, or one that is stopping (SERVICE_RESULT, systemd.exec(5))."""
    environ = os.environ if environ is None else environ
    if "SERVICE_RESULT" in environ:
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, directory = [*line.split(":", 2), "", ""][:3]
        parts = directory.strip("/").split("/")
        if controllers in ("", "name=systemd") and _SERVICE.fullmatch(parts[-1]):
            # One of a user's own manager (user@1000.service/…) is not the system's.
            return None if any(part.endswith(".service") for part in parts[:-1]) else parts[-1]
    return None


def leave(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    identity: Identity | None,
    directory: str = DIRECTORY,
) -> Outside | None:
    """How to run `command` outside; None: it has to be run as it is, which is said once for each reason, unless there is nothing to leave.

    `seconds`: its deadline, which the caller keeps; the manager ends it somewhat later in case the caller is gone. Raises FileNotFoundError
    or PermissionError for a program that cannot be run at all, ValueError for a NUL, as starting it would.
    """
    if not can_leave():
        return None
    run, systemctl, service = find_program("systemd-run"), find_program("systemctl"), own_service()
    if run is None or systemctl is None or service is None:
        return None
    _check(command, environment)
    try:
        text = environment_file(environment).encode()
        for word in command:
            word.encode()
    except UnicodeEncodeError:
        inside("an argument or a variable is no UTF-8")
        return None
    if any(not _NAME.fullmatch(name) for name in environment):
        inside("a variable has a name that systemd does not take")
        return None
    name = f"moetuned-run-{os.urandom(8).hex()}"
    own = f"{directory}/{name}"
    unit = f"{name}.service"
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.mkdir(own, 0o700)
        with open(
            os.open(f"{own}/environment", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        ) as file:
            file.write(text)
    except OSError as error:
        inside(f"{own} cannot be written: {error.strerror}")
        Outside(unit, own, []).close()
        return None
    options = ["--pipe", "--wait", "--collect", "--quiet", "--service-type=exec", f"--unit={unit}"]
    options.append(f"--description=moetuned runs {_printable(command[0])}")
    if identity is not None:
        options += [f"--uid={identity.user}", f"--gid={identity.group}"]
    options += [f"--property={each}" for each in _properties(own, unit, systemctl, service, seconds)]
    unset = " ".join(each for each in _ADDED if each not in environment)
    options += [f"--property=UnsetEnvironment={unset}"] if unset else []
    if identity is not None and identity.groups:
        options.append(f"--property=SupplementaryGroups={' '.join(map(str, identity.groups))}")
    # systemd replaces variables in arguments (systemd.service(5), "Command lines").
    return Outside(unit, own, [run, *options, "--", *(word.replace("$", "$$") for word in command)])


def _properties(own: str, unit: str, systemctl: str, service: str, seconds: float) -> tuple[str, ...]:
    """It ends with the daemon's service, after it: a daemon that stops waits for what it started as long as it means to.

    It waits for that itself. An order of units (Before=) would do the same, but also keep what a daemon needs while it stops (swapoff, a
    hook) from being started until it has stopped: systemd orders every end before every start (systemd.unit(5)).

    What a program leaves running when it ends stays, as it does without systemd: Exim and dma deliver that way. Only where the
    program itself is stopped all of it is.
    """
    kill = f"{systemctl} kill --signal=%s -- {unit}"
    stopping = f'[ "$$({systemctl} show -P ActiveState -- {service})" = deactivating ]'
    # Also called when the program has ended by itself; then there is no $MAINPID.
    wait = f"while {stopping} && kill -0 $$MAINPID 2>/dev/null; do sleep 0.2; done"
    stop = f'[ -z "$$MAINPID" ] || {{ {wait}; trap "" TERM; {kill % "TERM"}; sleep 2; {kill % "KILL"}; }}'
    return (
        f"StopPropagatedFrom={service}",
        f"EnvironmentFile=-{own}/environment",
        f"ExecStop=+/bin/sh -c '{stop}'",
        f"ExecStopPost=+/bin/sh -c 'echo \"$$EXIT_CODE $$EXIT_STATUS\" >{own}/end; rm -f {own}/environment'",
        "KillMode=process",
        f"TimeoutStopSec={STOP_SECONDS:.0f}",
        f"RuntimeMaxSec={seconds + SPARE_SECONDS:.0f}",
        "WorkingDirectory=/",
        "UMask=0022",
        "IgnoreSIGPIPE=no",
        "OOMScoreAdjust=0",
        "LogLevelMax=notice",
    )


def _check(command: Sequence[str], environment: Mapping[str, str]) -> None:
    if any("\0" in word for word in (*command, *environment, *environment.values())):
        raise ValueError("embedded null byte")
    os.stat(command[0])
    if os.path.isdir(command[0]) or not os.access(command[0], os.X_OK):
        raise PermissionError(13, os.strerror(13), command[0])


def environment_file(environment: Mapping[str, str]) -> str:
    """The text of an EnvironmentFile= that says exactly this (systemd.exec(5)): all in double quotes, in which four characters are escaped."""
    return "".join(f"{name}={in_double_quotes(value)}\n" for name, value in environment.items())


def inside(why: str) -> None:
    """Say, once for each reason, that a program is run within the daemon's own restrictions."""
    if why not in _said and len(_said) < 100:
        _said.add(why)
        log.warning("programs are run within the restrictions of moetuned's unit, in which some do not work: %s", why)


def _printable(text: str) -> str:
    # % would be a specifier in a unit file.
    return "".join(char if char.isprintable() and char not in "%\\" else "?" for char in os.path.basename(text)[:80])
