"""The processes that systemd runs with the main process of a unit, held so that a signal reaches them and never those of its next start.

`systemctl kill` means whatever runs when systemd comes to it: after the main process of a unit was ended while a restart waited for
that, it hit the next one in 30 of 30 tries, and the unit was down.
"""

from __future__ import annotations

import contextlib
import os

from moetuned.host.cgroup import processes_in
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.processes import ProcessHandle, ProcessIdentity, identify, is_alive
from moetuned.parse.mountinfo import parse_mountinfo
from moetuned.parse.process_cgroup import service_places

_REAL = RealFS()
_MOST = 256


def hold_unit(main: ProcessIdentity, unit: str, fs: HostFS = _REAL) -> list[ProcessHandle]:
    """All processes in the cgroup of `unit`, to be closed by the caller; none where `main` has ended or is not in it. Raises OSError.

    systemd starts a unit anew only once its processes have ended. So what is held while `main` still lives belongs to its start.
    """
    places = service_places(
        fs.read_text(f"/proc/{main.pid}/cgroup"), parse_mountinfo(fs.read_text("/proc/self/mountinfo"))
    )
    held: list[ProcessHandle] = []
    for place in places:
        parts = place.relative.split("/")
        if unit not in parts:
            continue
        own = "/".join((place.mount_point, *parts[: parts.index(unit) + 1]))
        for directory, _, _ in os.walk(own):
            with contextlib.suppress(FileNotFoundError):
                held += [handle for pid in processes_in(directory) if (handle := _hold(pid)) is not None]
            if len(held) >= _MOST:
                break
        break
    if is_alive(main):
        return held
    for handle in held:
        handle.close()
    return []


def _hold(pid: int) -> ProcessHandle | None:
    identity = identify(pid)
    try:
        return None if identity is None else ProcessHandle(identity)
    except ProcessLookupError:
        return None
