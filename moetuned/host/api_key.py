"""The API key of a llama-server, for requests to that very server: from its command line, its environment, or the file it names.

It is read when it is needed and kept nowhere. The file is read only as far as the server itself may read it: this runs as root, and a
process writes its own command line as it likes.
"""

from __future__ import annotations

import os
import stat

from moetuned.host.processes import command_line, variables
from moetuned.parse.llama_api_key import VARIABLES, api_key_source, first_key

_LIMIT_BYTES = 64 << 10


def read_api_key(pid: int) -> str | None:
    """A key that the server `pid` takes; None: it has none, or it cannot be read."""
    argv = command_line(pid)
    if not argv:
        return None
    text, path = api_key_source(argv[1:], variables(pid, VARIABLES))
    found = None if text is None else first_key(text, ",")
    if found is not None or path is None:
        return found
    try:
        return first_key(_readable_by(pid, path), "\n")
    except OSError:
        return None


def _readable_by(pid: int, path: str) -> str:
    """Raises OSError, PermissionError for a file that the process itself may not be able to read."""
    owner = os.stat(f"/proc/{pid}").st_uid
    whole = path if os.path.isabs(path) else os.path.join(os.readlink(f"/proc/{pid}/cwd"), path)
    descriptor = os.open(f"/proc/{pid}/root{whole}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        may = owner in (0, status.st_uid) or status.st_mode & stat.S_IROTH
        if not stat.S_ISREG(status.st_mode) or not may:
            raise PermissionError(path)
        return file.read(_LIMIT_BYTES).decode("utf-8", "replace")
