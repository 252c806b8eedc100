"""Where the daemon's socket is: root's daemon has it under /run, one that a user started in the user's own directory.

Light on purpose: every moetunectl start imports it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SOCKET_NAME = "api.sock"
DEFAULT_DIRECTORY = "/run/moetuned"
DEFAULT_SOCKET = f"{DEFAULT_DIRECTORY}/{SOCKET_NAME}"


def user_directory(environ: Mapping[str, str]) -> str | None:
    """Directory of a daemon that a user without rights started; None when the session has none (XDG_RUNTIME_DIR)."""
    own = environ.get("XDG_RUNTIME_DIR")
    return os.path.join(own, "moetuned") if own else None


def find_socket(environ: Mapping[str, str], default: str = DEFAULT_SOCKET) -> str:
    """The socket to ask: MOETUNED_RUNTIME_DIR's, else the machine's, else the user's own where only that one exists."""
    named = environ.get("MOETUNED_RUNTIME_DIR")
    if named:
        return os.path.join(os.path.abspath(named), SOCKET_NAME)
    directory = user_directory(environ)
    own = None if directory is None else os.path.join(directory, SOCKET_NAME)
    return own if own is not None and os.path.exists(own) and not os.path.exists(default) else default
