"""The processes that run with a backend's main process in a cgroup of its own, a unit's or a container's: held, stopped, continued.

Each by a pidfd, so that a signal reaches it and never a process of the next start. `systemctl kill` means whatever runs when systemd comes
to it: after the main process of a unit was ended while a restart waited for that, it hit the next one in 30 of 30 tries, and the unit was
down. And they are stopped by signals, not by the cgroup's freezer, which would hold what is started in it next, and which is its
manager's to set.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable

from moetuned.host.cgroup import processes_in
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.processes import ProcessHandle, ProcessIdentity, identify, is_alive, parent
from moetuned.parse.mountinfo import parse_mountinfo
from moetuned.parse.process_cgroup import memory_cgroup_place, service_places

_REAL = RealFS()
_MOST = 256
_ROUNDS = 4
"""So often it is looked what was started in between by what was not stopped yet."""


def hold_own(main: ProcessIdentity, is_own: Callable[[str], bool], fs: HostFS = _REAL) -> list[ProcessHandle]:
    """All processes in the highest cgroup of `main` whose name `is_own`, and below, to be closed by the caller. Raises OSError.

    None where there is no such cgroup, where `main` has ended, and where this program is among them: then the cgroup is no backend's.
    systemd and the engines start something anew only once its processes have ended. So what is held while `main` still lives belongs to
    its start.
    """
    own = fs.read_text(f"/proc/{main.pid}/cgroup")
    mounts = parse_mountinfo(fs.read_text("/proc/self/mountinfo"))
    held: list[ProcessHandle] = []
    # An engine on a machine without systemd has version 1 hierarchies of controllers alone.
    for place in (*service_places(own, mounts), memory_cgroup_place(own, mounts)):
        if isinstance(place, str):
            continue
        parts = place.relative.split("/")
        depth = next((number for number, part in enumerate(parts, 1) if is_own(part)), None)
        if depth is None:
            continue
        for directory, _, _ in os.walk("/".join((place.mount_point, *parts[:depth]))):
            with contextlib.suppress(FileNotFoundError):
                held += [handle for pid in processes_in(directory) if (handle := _hold(pid)) is not None]
            if len(held) >= _MOST:
                break
        break
    if is_alive(main) and os.getpid() not in [handle.identity.pid for handle in held]:
        return held
    _close(held)
    return []


def stop_others(
    main: ProcessIdentity, held: Callable[[], list[ProcessHandle]], before: Callable[[ProcessIdentity], None]
) -> tuple[ProcessIdentity, ...]:
    """Stop (SIGSTOP) what `held` has besides `main`, until nothing new is among it; which processes those are.

    `before` is told each before that and may raise OSError: then neither it nor any further one is stopped. Children of this program
    (what warms, what locks) go on, they are none of the backend's.
    """
    stopped: list[ProcessIdentity] = []
    for _ in range(_ROUNDS):
        handles = held()
        try:
            fresh = [
                each
                for each in handles
                if each.identity != main and each.identity not in stopped and parent(each.identity.pid) != os.getpid()
            ]
            for each in fresh:
                before(each.identity)
                if each.send(signal.SIGSTOP):
                    stopped.append(each.identity)
        except OSError:
            break
        finally:
            _close(handles)
        if not fresh:
            break
    return tuple(stopped)


def let_on(identities: Iterable[ProcessIdentity]) -> None:
    """Continue (SIGCONT) those of these processes that still run."""
    for identity in identities:
        with contextlib.suppress(OSError):
            handle = ProcessHandle(identity)
            try:
                handle.send(signal.SIGCONT)
            finally:
                handle.close()


def _hold(pid: int) -> ProcessHandle | None:
    identity = identify(pid)
    try:
        return None if identity is None else ProcessHandle(identity)
    except ProcessLookupError:
        return None


def _close(handles: Iterable[ProcessHandle]) -> None:
    for handle in handles:
        handle.close()
