"""What a service manager is asked of a backend that it runs and moetuned may have restarted. One file each: a unit, a container, a script.

What looks and restarts blocks, for no longer than the deadlines that each file names, and is called in a lane of the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import msgspec

from moetuned.host.processes import ProcessHandle, ProcessIdentity

T = TypeVar("T")

VALUES = ("context", "prompt_cache_mib", "slots", "checkpoints", "cache_type")
"""What a restart may change, as in `decide.supervision.LaunchPlan`; the values are text."""


class ServiceError(OSError):
    """The manager did not do it, or did not say; the text is one sentence with what it said."""


class ServiceState(msgspec.Struct, frozen=True):
    """What the manager says now.

    `pid`: of the main process, in this pid namespace; None: none runs. `pid_known` False: it does not tell whether and as what a process
    runs, so that has to be found by looking for it; then `pid` is None and says nothing. `changing`: it is being started or ended. `ended`: how the last
    process ended, the end of the sentence "NAME …" ("exited with code 1"); None: not known. `stopped_by_owner`: it does not run because
    somebody wanted that; it is nobody's task to start it. `on_purpose`: a process other than `pid` ended because somebody has it restarted,
    or still stops it. `oom_killed`: the last process was ended by the kernel's OOM killer.
    """

    pid: int | None
    pid_known: bool = True
    changing: bool = False
    ended: str | None = None
    stopped_by_owner: bool = False
    oom_killed: bool = False
    on_purpose: bool = False


class Keeper(Protocol[T]):
    """Where a service keeps on disk what must outlive the daemon."""

    def read(self) -> T:
        """What was written last, or the record that says that there is none. Raises OSError, also for what is damaged."""
        ...

    def write(self, record: T) -> None:
        """Replace it in one step; it is on the disk when this returns. Raises OSError."""
        ...


class Service(Protocol):
    """One backend at its manager. Not for use by two threads at once."""

    @property
    def what(self) -> str:
        """What it is, for people: "the unit llama.service"."""
        ...

    def look(self) -> ServiceState:
        """What the manager says now. Raises ServiceError."""
        ...

    def settable(self) -> frozenset[str]:
        """Which of `VALUES` a restart can change as things are set up now. Raises ServiceError."""
        ...

    def restart(self, values: Mapping[str, str]) -> None:
        """End it if it runs and start it with these values, a subset of `settable`; what is not named stays as it is.

        Returns once that is done, or once the manager has taken it over so that it will be done even if this daemon dies. What is
        needed to go back to the values before is on disk before anything is changed. Raises ServiceError; then it is as it was, or
        still running, or the text says what is left.
        """
        ...

    @property
    def told_to_end(self) -> bool:
        """Whether the restart that was asked for last has told the old process to end, so that it may be killed if it does not.

        Before that nothing was touched, and the restart may still fail. May be asked while `restart` runs.
        """
        ...

    def kill(self, main: ProcessIdentity) -> None:
        """End `main` and what belongs to it without asking (SIGKILL), and no other process: the next one may run already. Does not block."""
        ...

    def hold(self, main: ProcessIdentity) -> list[ProcessHandle]:
        """All processes that run with `main` in a cgroup that is this backend's alone, to be closed by the caller; none where there is no
        such cgroup, or that is not known. Does not block.
        """
        ...
