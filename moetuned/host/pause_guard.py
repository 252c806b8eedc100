"""Continues a process that the daemon has stopped (SIGSTOP), also when the daemon is gone, or does not come to it.

A fixed script waits for the end of a pipe that the daemon holds, which comes with the daemon's own end, however that comes, and for so many
seconds at most. Then it continues the process and its group, if that is still the same one: by field 22 of /proc/<pid>/stat, as everywhere.
"""

from __future__ import annotations

import subprocess

from moetuned.host.processes import ProcessIdentity
from moetuned.host.system_program import find_program

_SCRIPT = """\
set -f
"$4" "$3" cat >/dev/null 2>&1
stat=$(cat "/proc/$1/stat") || exit 0
set -- "$1" "$2" ${stat##*)}
[ "${22}" = "$2" ] || exit 0
kill -s CONT -- "-$1" 2>/dev/null
kill -s CONT -- "$1"
"""
"""After `set --` field 3 of stat, the state, is the third argument, so that fields and arguments have the same numbers."""


class PauseGuard:
    """The helper; it ends by itself."""

    def __init__(self, identity: ProcessIdentity, seconds: float) -> None:
        """Continue `identity` after `seconds` at the latest. Raises OSError when no helper can be started: then nothing may be stopped."""
        shell, timeout = find_program("sh"), find_program("timeout")
        if shell is None or timeout is None:
            raise FileNotFoundError("there is no program timeout (coreutils)" if shell else "there is no program sh")
        self._child = subprocess.Popen(
            (shell, "-c", _SCRIPT, "sh", str(identity.pid), str(identity.start_ticks), f"{seconds:.1f}", timeout),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            cwd="/",
            start_new_session=True,
        )

    def release(self) -> None:
        """Continue the process now."""
        if self._child.stdin is not None:
            self._child.stdin.close()

    def cancel(self) -> None:
        """End the helper without continuing the process, which may be running already. It is collected."""
        self._child.kill()
        self.release()
        self._child.wait()

    @property
    def ended(self) -> bool:
        """Whether it has done so, and was collected."""
        return self._child.poll() is not None
