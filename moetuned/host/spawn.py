"""Starts a backend as a child, and takes over one that an earlier daemon started.

The child gets no death signal: a daemon that is killed must find its backend again. Nothing is ever given to a shell to parse; where
a memory cgroup has to be joined before the program runs, a fixed script gets directory and command as positional arguments.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from moetuned.host.cgroup import JOIN_FAILED_CODE, check_directory, joining
from moetuned.host.own_scope import in_journal, in_scope
from moetuned.host.processes import ProcessHandle, ProcessIdentity, identify
from moetuned.host.program_search import find_program
from moetuned.schema.supervise import ResourceLimits
from moetuned.schema.units import parse_bytes

log = logging.getLogger(__name__)

_SERVICE_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID")
"""A child that had them could speak to the service manager in the daemon's name."""


class StartError(Exception):
    """A child could not be started; the text is one sentence."""


class Exit(msgspec.Struct, frozen=True):
    """How a process ended. `code` None: it was no child of this daemon; negative: the signal that ended it."""

    code: int | None

    def __str__(self) -> str:
        """The end of the sentence "NAME …"."""
        if self.code is None:
            return "ended"
        if self.code < 0:
            return f"was ended by {_signal_name(-self.code)}"
        if self.code == JOIN_FAILED_CODE:
            return f"exited with code {self.code} (its cgroup could not be joined)"
        return f"exited with code {self.code}"


class SupervisedProcess:
    """A backend's main process: our child, or one that was taken over. Leads a session and process group of its own.

    Watch `fileno()` for reading; it is readable once the process has ended. Then call `poll()`.
    """

    def __init__(self, handle: ProcessHandle, child: subprocess.Popen[bytes] | None) -> None:
        """Use `start` or `adopt`."""
        self._handle = handle
        self._child = child
        self._exit: Exit | None = None

    @property
    def identity(self) -> ProcessIdentity:
        """Pid and start time."""
        return self._handle.identity

    @property
    def adopted(self) -> bool:
        """Whether an earlier daemon started it."""
        return self._child is None

    def fileno(self) -> int:
        """A descriptor that is readable once the process has ended; -1 after `poll` has said so."""
        return self._handle.fileno()

    def poll(self) -> Exit | None:
        """How it ended, None while it runs. Collects a child; what is left of its process group is killed then."""
        if self._exit is None and self._handle.ended():
            # The zombie still holds the group's number here, so the signal cannot reach anybody else's group.
            if self._child is not None:
                _signal_group(self.identity.pid, signal.SIGKILL)
            self._exit = Exit(None if self._child is None else self._child.wait())
            self._handle.close()
        return self._exit

    def terminate(self) -> None:
        """Ask the process and its group to end (SIGTERM), also when they are paused. Does not wait."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # what is stopped gets no other signal before

    def pause(self) -> None:
        """Stop the process and its group where they are (SIGSTOP); their memory stays. SIGKILL ends them still."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process and its group go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process and its group (SIGKILL). Does not wait."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go without ending it."""
        self._handle.close()
        if self._child is not None and self._child.returncode is None:
            # Not ours to collect any more; without this Popen would complain and keep it on a list.
            self._child.returncode = 0

    def _signal(self, number: int) -> None:
        # Once only: llama-server takes a second SIGTERM for "at once" and exits with an error.
        if self._exit is not None or self._handle.ended() or _signal_group(self.identity.pid, number):
            return
        try:
            self._handle.send(number)
        except PermissionError:  # A daemon without root, and a backend that another manager runs as somebody else.
            name = _signal_name(number)
            log.warning("process %d belongs to another user and gets no %s", self.identity.pid, name)


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: str | None = None,
    cgroup_directory: str | None = None,
    log_path: str | None = None,
    limits: ResourceLimits = ResourceLimits(),  # noqa: B008  frozen
    backend: str | None = None,
) -> SupervisedProcess:
    """Start `command` with exactly this environment (see `child_environment`), in `directory` (None: /).

    `cgroup_directory`: an existing memory cgroup, joined before the program runs. `log_path`: a file that its output is
    appended to; None: the daemon's own output. `limits`: set before the program runs. `backend`: its name, with which it gets a scope of
    its own where systemd runs and no cgroup is given, and a name in the journal; None: neither. Raises StartError.
    """
    program = _find_program(command[0], environment, directory)
    argv = [program, *command[1:]]
    if cgroup_directory is not None:
        problem = check_directory(cgroup_directory)
        if problem is not None:
            raise StartError(problem)
        argv = joining(cgroup_directory, argv)
    argv = _limited(limits, argv)
    if backend is not None and log_path is None:
        argv = in_journal(backend, argv)
    if backend is not None and cgroup_directory is None:
        argv = in_scope(backend, argv) or argv
    output = None if log_path is None else _open_log(log_path)
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        child = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=directory or "/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,  # The service's own leaves nothing to others, models that a backend fetches among it.
        )
    except (OSError, ValueError) as error:
        raise StartError(f"cannot start {program}: {error}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if output is not None:
            os.close(output)
    _drop_daemon_privileges(child.pid)
    return _hold(child)


def _limited(limits: ResourceLimits, argv: list[str]) -> list[str]:
    """`argv` run by prlimit(1) with soft and hard limits. Setting them after the start would come too late for what it locks
    or opens first, and between fork and exec no Python of a process with threads may run.
    """
    wanted = {"memlock": limits.memlock, "nofile": limits.open_files, "core": limits.core}
    options = [
        f"--{name}={value if value == 'unlimited' else parse_bytes(value)}"
        for name, value in wanted.items()
        if value is not None
    ]
    if not options:
        return argv
    program = find_program("prlimit")
    if program is None:
        raise StartError("supervise.limits needs the program prlimit (util-linux)")
    return [program, *options, *argv]


def adopt(identity: ProcessIdentity) -> SupervisedProcess | None:
    """Take over a process that an earlier daemon started; None when it has ended. The caller has checked the boot id."""
    try:
        return SupervisedProcess(ProcessHandle(identity), None)
    except ProcessLookupError:
        return None


def child_environment(base: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """`base` and `added` without what belongs to the daemon's own talk with the service manager."""
    return {name: value for name, value in {**base, **added}.items() if name not in _SERVICE_VARIABLES}


def boot_id() -> str:
    """The kernel's id of this boot; a recorded pid means nothing in another one. Raises OSError."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _find_program(program: str, environment: Mapping[str, str], directory: str | None) -> str:
    if "/" in program:
        found = program if os.path.isabs(program) else os.path.join(directory or "/", program)
        if not os.path.exists(found):
            raise StartError(f"there is no program {found}")
        if os.path.isdir(found) or not os.access(found, os.X_OK):
            raise StartError(f"{found} is not executable")
        return found
    path = environment.get("PATH", os.defpath)
    on_path = shutil.which(program, path=path)
    if on_path is None:
        raise StartError(f"there is no program {program} on PATH ({path}); give its full path")
    return on_path


def _open_log(path: str) -> int:
    """A log that may not be a link: the daemon is root and the directory may not be root's alone."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o640)
    except OSError as error:
        raise StartError(f"cannot open the log {path}: {error.strerror}") from error
    os.set_blocking(descriptor, True)
    return descriptor


def _hold(child: subprocess.Popen[bytes]) -> SupervisedProcess:
    """A child that was not collected keeps its pid, zombie or not, so this cannot be another process."""
    identity = identify(child.pid)
    try:
        if identity is not None:
            return SupervisedProcess(ProcessHandle(identity), child)
        problem = "its /proc entry cannot be read"
    except ProcessLookupError:
        problem = "it has ended"
    except OSError as error:
        problem = str(error)
    code = child.poll()
    if code is not None:
        raise StartError(f"it {Exit(code)} at once")
    child.kill()
    child.wait()
    raise StartError(f"cannot watch the child: {problem}")


def _drop_daemon_privileges(pid: int) -> None:
    """The daemon may be protected from the OOM killer and have a better nice value; its child must not inherit that."""
    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as own:
            if int(own.read()) < 0:
                with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as childs:
                    childs.write("0")
        if os.getpriority(os.PRIO_PROCESS, 0) < 0:
            os.setpriority(os.PRIO_PROCESS, pid, 0)
    except OSError as error:
        log.warning("child %d keeps the daemon's OOM score or nice value: %s", pid, error)


def _signal_group(group: int, number: int) -> bool:
    """Whether there was such a group to signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
