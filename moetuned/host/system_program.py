"""Programs of the system that are run as root: looked for in the system's own directories, with no shell and an empty environment."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_SECONDS = 60.0
_SAID_BYTES = 300
_PIECE_BYTES = 1 << 16


class ProgramError(OSError):
    """A program is missing, failed or did not end; the text is one sentence."""


def find_program(name: str) -> str | None:
    """The absolute path of a system program; PATH is not asked: this runs as root."""
    for directory in _DIRECTORIES:
        path = f"{directory}/{name}"
        if os.access(path, os.X_OK):
            return path
    return None


def run_program(name: str, arguments: Sequence[str], package: str, seconds: float | None = None) -> None:
    """Run a system program to its end, at most a minute, or `seconds`. Raises ProgramError with what it said when it fails.

    Output is neither kept nor shown beyond a line. It gets nothing of the daemon's environment: no talk with the service manager,
    no other bus than the system's, no options (MODPROBE_OPTIONS). `package`: what to install where there is none.
    """
    patience = _SECONDS if seconds is None else seconds
    with _started(name, arguments, package, subprocess.DEVNULL) as process:
        _, said = _hear(name, process, patience, 0)
    _check(name, process.returncode, said)


def ask_program(name: str, arguments: Sequence[str], package: str, seconds: float, limit_bytes: int) -> str:
    """What a system program prints, undecodable bytes replaced. Else as `run_program`; more than `limit_bytes` is an error, too."""
    with _started(name, arguments, package, subprocess.PIPE) as process:
        printed, said = _hear(name, process, seconds, limit_bytes)
    _check(name, process.returncode, said)
    return printed.decode("utf-8", "replace")


def _started(name: str, arguments: Sequence[str], package: str, output: int) -> subprocess.Popen[bytes]:
    program = find_program(name)
    if program is None:
        raise ProgramError(f"there is no program {name}; install {package}")
    return subprocess.Popen(
        (program, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        env={"PATH": ":".join(_DIRECTORIES), "LC_ALL": "C"},
        cwd="/",
    )


def _hear(name: str, process: subprocess.Popen[bytes], seconds: float, limit_bytes: int) -> tuple[bytes, bytes]:
    """What it printed, and the beginning of what it complained about, once it has ended. It is killed where this raises."""
    until = time.monotonic() + seconds
    printed, said = bytearray(), bytearray()
    limits = {process.stdout: (printed, limit_bytes), process.stderr: (said, None)}
    try:
        with selectors.DefaultSelector() as selector:
            for stream in limits:
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                _read_ready(name, selector, limits, until)
        process.wait(max(0.0, until - time.monotonic()))
    except (subprocess.TimeoutExpired, TimeoutError) as error:
        process.kill()
        raise ProgramError(f"{name} did not end within {seconds:.0f} s") from error
    except BaseException:
        process.kill()
        raise
    return bytes(printed), bytes(said[:_SAID_BYTES])


def _read_ready(
    name: str,
    selector: selectors.BaseSelector,
    limits: Mapping[IO[bytes] | None, tuple[bytearray, int | None]],
    until: float,
) -> None:
    """Read a piece of each stream that has one; no limit: what is too much is dropped. Raises TimeoutError, ProgramError."""
    ready = selector.select(max(0.0, until - time.monotonic()))
    if not ready:
        raise TimeoutError
    for key, _ in ready:
        piece = os.read(key.fd, _PIECE_BYTES)
        if not piece:
            selector.unregister(key.fileobj)
            continue
        heard, limit_bytes = next(each for stream, each in limits.items() if stream is key.fileobj)
        if limit_bytes is not None or len(heard) < _SAID_BYTES:
            heard += piece
        if limit_bytes is not None and len(heard) > limit_bytes:
            raise ProgramError(f"{name} printed more than {limit_bytes} bytes")


def _check(name: str, code: int, said: bytes) -> None:
    if code != 0:
        text = " ".join(said.decode("utf-8", "replace").split())
        raise ProgramError(f"{name} failed with code {code}{f': {text}' if text else ''}")
