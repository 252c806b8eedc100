"""What the state of a unit means: how its process ended, and whether somebody stopped it.

The results are those of systemd.exec(5), $SERVICE_RESULT. A stop that somebody asked for is told from a crash by the order of two
times: a unit that is stopped is no longer active before its process ends, one whose process dies is so afterwards.
"""

from __future__ import annotations

from moetuned.decide.exit_cause import OOM_KILLED
from moetuned.parse.unit_status import UnitStatus

_EXITED, _KILLED, _DUMPED = 1, 2, 3
_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
    13: "SIGPIPE", 15: "SIGTERM", 31: "SIGSYS",
}  # fmt: skip
"""Those that end servers; numbers of all architectures but MIPS."""
_NOT_STARTED = {
    200: "its directory cannot be entered (CHDIR)", 203: "its program cannot be run (EXEC)", 209: "its output cannot be opened (STDOUT)",
    213: "no cgroup could be made for it (CGROUP)", 214: "its scheduling cannot be set (SETSCHEDULER)",
    216: "its group is not known (GROUP)", 217: "its user is not known (USER)", 226: "its view of the files cannot be set up (NAMESPACE)",
    238: "its state directory cannot be made (STATE_DIRECTORY)", 243: "a credential cannot be read (CREDENTIALS)",
}  # fmt: skip
"""Exit codes of systemd's own child before the program runs (systemd.exec(5), "Process Exit Codes")."""
_RESULTS = {
    "oom-kill": OOM_KILLED,
    "watchdog": "was ended by systemd: it did not answer its watchdog in time",
    "timeout": "was ended by systemd: it did not start or end in time",
    "protocol": "ended without what systemd waits for at its start",
    "resources": "could not be started: systemd did not get what it needs for that",
}
_CHANGING = frozenset({"activating", "deactivating", "reloading", "refreshing", "maintenance"})
_RAN = frozenset({"success", "exit-code", "signal", "core-dump", "timeout"})


def is_changing(status: UnitStatus) -> bool:
    """Whether it is being started or ended, or waits for systemd to start it again."""
    return status.job or status.active_state in _CHANGING


def how_it_ended(status: UnitStatus) -> str | None:
    """The end of the sentence "NAME …" about its last process; None while one runs, and where nothing is known."""
    if status.active_state == "active" and status.main_pid is not None:
        return None
    said = _RESULTS.get(status.result) or _by_process(status)
    if status.result == "start-limit-hit":
        return f"{said or 'failed'}, too often in a row for systemd, which starts it no more"
    return said


def _by_process(status: UnitStatus) -> str | None:
    code, number = status.main_code, status.main_status
    if code == _EXITED and number in _NOT_STARTED and status.result != "success":
        return f"could not be started: {_NOT_STARTED[number]}"
    if code == _EXITED and number is not None:
        return f"exited with code {number}"
    if code in (_KILLED, _DUMPED) and number is not None:
        core = " with a core dump" if code == _DUMPED else ""
        return f"was ended by {_SIGNALS.get(number, f'signal {number}')}{core}"
    return None


def was_oom_killed(status: UnitStatus) -> bool:
    """Whether the last process was ended by the kernel's OOM killer. That systemd says so needs OOMPolicy= stop (the default) or kill."""
    return status.result == "oom-kill" and how_it_ended(status) is not None


def is_stopped_by_owner(status: UnitStatus) -> bool:
    """Whether it does not run because somebody wants that: never started, stopped, or done and not to be started again.

    What ends by itself with code 0 cannot be told from what was stopped, and counts as that too, unless systemd starts it again.
    """
    if is_changing(status) or status.active_state == "active":
        return False
    if status.load_state == "masked":
        return True
    if status.active_state == "inactive":
        return status.result in ("success", "exec-condition", "")
    return status.result in _RAN and _stopped_before_its_end(status)


def is_ended_on_purpose(status: UnitStatus) -> bool:
    """Whether the process that ended last was told to, and that is not all: somebody has the unit restarted, or still stops it.

    While it ends its unit is known to have left active before. Once the next one is begun systemd has forgotten when the last one ended
    (ExecMainExitTimestamp; during ExecStartPre= also when it began), but counts the starts of its own (NRestarts), and from nought again
    when somebody else starts it. Says nothing where `status.main_pid` is still the process that ended: systemd does not know of its end then.
    """
    began, left, ended = status.main_started_at, status.left_active_at, status.main_exited_at
    if is_stopped_by_owner(status) or left is None or status.result not in _RAN:
        return False
    if began is None:
        return status.active_state == "activating" and status.restarts == 0
    if status.main_pid is not None and status.active_state != "deactivating":
        return left < began and status.restarts == 0
    return began <= left and (ended is None or left < ended)


def _stopped_before_its_end(status: UnitStatus) -> bool:
    """Whether the unit was no longer active when its last process still ran; a start that failed never made it active."""
    began, left, ended = status.main_started_at, status.left_active_at, status.main_exited_at
    return began is not None and left is not None and ended is not None and began <= left < ended
