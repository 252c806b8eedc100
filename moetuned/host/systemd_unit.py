"""A backend that is a unit of systemd: looked at, restarted with other values, and killed, through systemctl and its deadlines.

The values go through the file of variables that the unit reads once it is adopted (`decide.unit_adoption`). A unit that its owner
stopped is never started, also not when the stop comes at the same moment: a running one is only ever tried to be restarted, and a
stop that is under way makes systemd refuse.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import time
from collections.abc import Mapping, Sequence

from moetuned.decide.unit_adoption import VALUES, environment_path, is_value, set_by
from moetuned.decide.unit_container import engine_of, instead
from moetuned.decide.unit_state import (
    how_it_ended,
    is_changing,
    is_ended_on_purpose,
    is_stopped_by_owner,
    was_oom_killed,
)
from moetuned.host.environment_file import age_seconds, read_variables, settled, take_back, write_variables
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.own_processes import hold_own
from moetuned.host.processes import ProcessHandle, ProcessIdentity, command_line
from moetuned.host.service import ServiceError, ServiceState
from moetuned.host.service_manager import is_unit
from moetuned.host.system_program import ProgramError, ask_program, run_program
from moetuned.host.systemd_booted import is_booted
from moetuned.parse.unit_file import UnitFile, merge_service
from moetuned.parse.unit_status import PROPERTIES, UnitStatus, parse_unit_status

log = logging.getLogger(__name__)

DIRECTORY = "/run/moetuned/backends"
LOOK_SECONDS = 5.0
_ACT_SECONDS = 20.0
_RELOAD_SECONDS = 90.0
"""Reading all units again runs the generators; on a slow disk that takes a while."""
_STATUS_BYTES = 64 << 10
_FILE_BYTES = 256 << 10
_MAY_BE_TOO_OFTEN = frozenset({"failed", "activating"})
"""One that failed too often in a row is not started before that is forgotten, and its result does not always say so."""
_RUNS = frozenset({"active", "activating", "reloading", "refreshing"})


class SystemdUnit:
    """The backend `name` as the unit `unit` (`llama.service`). See `host.service.Service`. Raises ValueError for what is no service.

    `directory`: where the files of variables lie.
    """

    def __init__(self, name: str, unit: str, directory: str = DIRECTORY, fs: HostFS | None = None) -> None:
        """Asks nothing yet."""
        if not is_service(unit):
            raise ValueError(f"{unit!r} is no service of systemd; write e.g. llama.service")
        self._name = name
        self._unit = unit
        self._directory = directory
        self._fs = fs or RealFS()
        self._told_to_end = False

    @property
    def what(self) -> str:
        """See `Service.what`."""
        return f"the unit {self._unit}"

    def look(self) -> ServiceState:
        """See `Service.look`. At most 5 s."""
        status = self._status()
        return ServiceState(
            pid=status.main_pid,
            changing=is_changing(status),
            ended=how_it_ended(status),
            stopped_by_owner=is_stopped_by_owner(status),
            oom_killed=was_oom_killed(status),
            on_purpose=is_ended_on_purpose(status),
        )

    def settable(self) -> frozenset[str]:
        """See `Service.settable`: what the unit, as systemd has read it, takes from its file of variables."""
        status = self._status()
        argv = None if status.main_pid is None else command_line(status.main_pid, self._fs)
        if argv and (engine := engine_of(argv)):
            raise ServiceError(instead(self._unit, engine))
        return frozenset(self._variables(status))

    def restart(self, values: Mapping[str, str]) -> None:
        """See `Service.restart`. Returns once systemd has the job in its queue; at most half a minute."""
        self._told_to_end = False
        status = self._status()
        if is_stopped_by_owner(status):
            raise ServiceError(f"{self.what} does not run because somebody wants that; moetuned does not start it")
        given = self._given(status, values) if values else {}
        try:
            if self._came_about(status):
                self._settle()
            if given:
                write_variables(self._name, {**read_variables(self._name, self._directory), **given}, self._directory)
        except OSError as error:
            path = environment_path(self._name, self._directory)
            raise ServiceError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
        try:
            if status.active_state in _MAY_BE_TOO_OFTEN:
                self._ask(("reset-failed",), _ACT_SECONDS)
            verb = "try-restart" if status.active_state in _RUNS else "restart"
            self._ask((verb, "--no-block", "--job-mode=fail"), _ACT_SECONDS)
            self._told_to_end = True
        except ServiceError as error:
            raise self._taken_back(error) if given else error from None
        self._settle()

    @property
    def told_to_end(self) -> bool:
        """See `Service.told_to_end`: once systemd has the job."""
        return self._told_to_end

    def kill(self, main: ProcessIdentity) -> None:
        """See `Service.kill`: all that is in the unit's cgroup with it."""
        for handle in self.hold(main):
            with contextlib.suppress(PermissionError):
                handle.send(signal.SIGKILL)
            handle.close()

    def hold(self, main: ProcessIdentity) -> list[ProcessHandle]:
        """See `Service.hold`: all that is in the unit's cgroup."""
        try:
            return hold_own(main, lambda part: part == self._unit, self._fs)
        except OSError as error:
            log.warning("%s: what else runs in %s is not known: %s", self._name, self.what, error.strerror or error)
            return []

    def _status(self) -> UnitStatus:
        status = unit_status(self._unit)
        if status.load_state not in ("loaded", "masked"):
            raise ServiceError(f"systemd has no unit {self._unit} ({status.load_state})")
        return status

    def _variables(self, status: UnitStatus) -> dict[str, tuple[str, ...]]:
        if status.needs_reload:
            raise ServiceError(
                f"files of {self._unit} have changed since systemd read them: run systemctl daemon-reload"
            )
        service = merge_service(unit_files(status, self._fs))
        return set_by(service, environment_path(self._name, self._directory), status.environment_files).variables

    def _given(self, status: UnitStatus, values: Mapping[str, str]) -> dict[str, str]:
        """The variables for these values."""
        variables = self._variables(status)
        for name, value in values.items():
            if name not in VALUES or not is_value(name, value):
                raise ValueError(f"{name}={value!r} is nothing that a restart changes")
        if missing := sorted(set(values) - set(variables)):
            raise ServiceError(
                f"{self.what} takes no {' and no '.join(missing)} from {environment_path(self._name, self._directory)}: "
                f"see moetunectl backend adopt {self._unit}"
            )
        return {variable: value for name, value in values.items() for variable in variables[name]}

    def _ask(self, arguments: Sequence[str], seconds: float) -> None:
        verb, *options = arguments
        try:
            run_program("systemctl", ("--no-ask-password", verb, *options, "--", self._unit), "systemd", seconds)
        except ProgramError as error:
            raise ServiceError(f"systemctl {verb} {self._unit} was not done: {error}") from error

    def _came_about(self, status: UnitStatus) -> bool:
        """Whether what runs was started since the file was written: also of a change whose daemon did not live to see that."""
        age = age_seconds(self._name, self._directory)
        if age is None or status.main_pid is None or status.main_started_at is None:
            return False
        return time.monotonic() - status.main_started_at / 1e6 < age

    def _settle(self) -> None:
        try:
            settled(self._name, self._directory)
        except OSError as error:
            path = environment_path(self._name, self._directory)
            log.warning("%s: what %s said before the restart cannot be removed: %s", self._name, path, error.strerror)

    def _taken_back(self, error: ServiceError) -> ServiceError:
        """What to say once the values are as before."""
        try:
            take_back(self._name, self._directory)
        except OSError as left:
            path = environment_path(self._name, self._directory)
            return ServiceError(f"{error}; {path} has the new values, which count at its next start ({left.strerror})")
        return error


def is_service(unit: str) -> bool:
    """Whether `unit` can be the name of a service."""
    return is_unit(unit) and unit.endswith(".service") and not unit.endswith("@.service")


def unit_status(unit: str) -> UnitStatus:
    """What systemd says of a unit; at most 5 s. Raises ServiceError."""
    if not is_booted():
        raise ServiceError(f"{unit} is a unit of systemd, which does not run here")
    arguments = ("--no-ask-password", "--no-pager", "show", f"--property={','.join(PROPERTIES)}", "--", unit)
    try:
        text = ask_program("systemctl", arguments, "systemd", LOOK_SECONDS, _STATUS_BYTES)
    except ProgramError as error:
        raise ServiceError(f"systemd does not say how {unit} is: {error}") from error
    status = parse_unit_status(text)
    if status is None:
        raise ServiceError(f"systemd does not say how {unit} is: its answer is not understood")
    return status


def unit_files(status: UnitStatus, fs: HostFS) -> tuple[UnitFile, ...]:
    """The unit's own file and its drop-ins, in the order systemd reads them. Raises ServiceError with the path of what cannot be read."""
    if status.drop_ins is None:
        raise ServiceError(f"a drop-in of {status.name} has a name that moetuned does not understand")
    paths = (*((status.fragment,) if status.fragment else ()), *status.drop_ins)
    found = []
    for path in paths:
        try:
            text = fs.read_text(path, _FILE_BYTES + 1)
        except OSError as error:
            raise ServiceError(f"cannot read {path}, a file of {status.name}: {error.strerror or error}") from error
        if len(text.encode("utf-8", "surrogatepass")) > _FILE_BYTES:
            raise ServiceError(
                f"cannot read {path}, a file of {status.name}: it is larger than {_FILE_BYTES >> 10} KiB"
            )
        found.append(UnitFile(path, text))
    return tuple(found)


def reload_units() -> None:
    """Make systemd read its units again (daemon-reload); at most a minute and a half. Raises OSError with what it said."""
    try:
        run_program("systemctl", ("--no-ask-password", "daemon-reload"), "systemd", _RELOAD_SECONDS)
    except ProgramError as error:
        raise OSError(errno.EIO, f"systemctl daemon-reload was not done: {error}") from error
