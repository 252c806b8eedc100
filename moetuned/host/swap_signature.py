"""The swap signature on a file or device: written by util-linux's mkswap, read here. Its UUID says whose swap it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from moetuned.host.spawn import child_environment
from moetuned.parse.swap_header import HEADER_BYTES

_SAFE_PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_SECONDS = 60.0
_SAID_BYTES = 200
LABEL = "moetuned"


class SwapError(OSError):
    """Something about swap that could not be done; the text is one sentence."""


def make_signature(path: str, uuid: str) -> None:
    """Make `path`, a file or device of its final size, a swap with this UUID (mkswap(8)). Raises OSError, SwapError."""
    run_program("mkswap", ("-U", uuid, "-L", LABEL, path), "util-linux")


def read_head(descriptor: int) -> bytes:
    """The first bytes of an open file or device, as many as a swap signature can take. Raises OSError."""
    head = b""
    while len(head) < HEADER_BYTES:
        piece = os.pread(descriptor, HEADER_BYTES - len(head), len(head))
        if not piece:
            break
        head += piece
    return head


def find_program(name: str) -> str | None:
    """The absolute path of a system program; PATH is not asked: this runs as root."""
    for directory in _SAFE_PATH:
        path = f"{directory}/{name}"
        if os.access(path, os.X_OK):
            return path
    return None


def run_program(name: str, arguments: Sequence[str], package: str) -> None:
    """Run a system program to its end, at most a minute. Raises SwapError with what it said when it fails.

    Output is neither kept nor shown beyond a line; there is no shell and nothing of the daemon's talk with systemd.
    """
    program = find_program(name)
    if program is None:
        raise SwapError(f"there is no program {name}; install {package}")
    environment = {**child_environment(os.environ, {}), "PATH": ":".join(_SAFE_PATH), "LC_ALL": "C"}
    try:
        done = subprocess.run(
            (program, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SwapError(f"{name} did not end within {_SECONDS:.0f} s") from error
    if done.returncode != 0:
        said = " ".join(done.stderr[:_SAID_BYTES].decode("utf-8", "replace").split())
        raise SwapError(f"{name} failed with code {done.returncode}{f': {said}' if said else ''}")
