"""Whether a process is frozen by its cgroup: then nothing moves, and it hangs no more than one that is stopped by a signal.

Its state in /proc/<pid>/stat does not tell: in v2 it sleeps (S), as one that waits for work does. Source: cgroup-v2.rst (cgroup.events,
which says it also where a cgroup above is frozen) and cgroup-v1/freezer-subsystem.rst.
"""

from __future__ import annotations

from moetuned.host.fs import HostFS, RealFS
from moetuned.parse.kernel_numbers import line_number
from moetuned.parse.mountinfo import parse_mountinfo
from moetuned.parse.process_cgroup import freezer_places

_REAL = RealFS()
_THAWED = "THAWED"


def is_frozen(pid: int, fs: HostFS = _REAL) -> bool | None:
    """Whether it is, or is about to be; None when that cannot be told."""
    try:
        places = freezer_places(
            fs.read_text(f"/proc/{pid}/cgroup"), parse_mountinfo(fs.read_text("/proc/self/mountinfo"))
        )
    except OSError:
        return None
    frozen = False
    for place in places:
        directory = f"{place.mount_point}/{place.relative}" if place.relative else place.mount_point
        try:
            if place.version == 1:
                frozen |= fs.read_text(f"{directory}/freezer.state").strip() != _THAWED
            else:
                frozen |= line_number(fs.read_text(f"{directory}/cgroup.events"), "frozen") == 1
        except FileNotFoundError:
            continue  # a root cannot be frozen
        except OSError:
            return None
    return frozen
