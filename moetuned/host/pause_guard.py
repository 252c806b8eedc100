"""Continues processes that the daemon has stopped (SIGSTOP), also when the daemon is gone, or does not come to it.

A fixed script reads from a pipe which they are, until its end, which comes with the daemon's own end, however that comes, and for so many
seconds at most. Then it continues each and its group, if that is still the same one: by field 22 of /proc/<pid>/stat, as everywhere.
"""

from __future__ import annotations

import subprocess

from moetuned.host.processes import ProcessIdentity
from moetuned.host.program_search import find_program

_SCRIPT = """\
set -f
go_on() {
    pid=$1 began=$2
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || return
    set -- 1 2 ${stat##*)}
    [ "${22}" = "$began" ] || return
    kill -s CONT -- "-$pid" 2>/dev/null
    kill -s CONT -- "$pid"
}
set -- $("$2" "$1" cat 2>/dev/null)
while [ $# -ge 2 ]; do
    go_on "$1" "$2"
    shift 2
done
"""
"""In `go_on` field 3 of stat, the state, becomes the third argument, so that fields and arguments have the same numbers."""


class PauseGuard:
    """The helper; it ends by itself."""

    def __init__(self, identity: ProcessIdentity, seconds: float) -> None:
        """Continue `identity` after `seconds` at the latest. Raises OSError when no helper can be started: then nothing may be stopped."""
        shell, timeout = find_program("sh"), find_program("timeout")
        if shell is None or timeout is None:
            raise FileNotFoundError("there is no program timeout (coreutils)" if shell else "there is no program sh")
        self._child = subprocess.Popen(
            (shell, "-c", _SCRIPT, "sh", f"{seconds:.1f}", timeout),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            cwd="/",
            start_new_session=True,
        )
        try:
            self.also(identity)
        except OSError:
            self.cancel()
            raise

    def also(self, identity: ProcessIdentity) -> None:
        """Continue this one, too. Raises OSError when it is too late for that: then it may not be stopped."""
        if self._child.stdin is None or self._child.stdin.closed:
            raise BrokenPipeError("it was released")
        self._child.stdin.write(f"{identity.pid} {identity.start_ticks}\n".encode())

    def release(self) -> None:
        """Continue the processes now."""
        if self._child.stdin is not None:
            self._child.stdin.close()

    def cancel(self) -> None:
        """End the helper without continuing the processes, which may be running already. It is collected."""
        self._child.kill()
        self.release()
        self._child.wait()

    @property
    def ended(self) -> bool:
        """Whether it has done so, and was collected."""
        return self._child.poll() is not None
