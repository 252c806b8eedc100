"""The prompts of the prompt warm-up: the set that comes with moetuned, or a file of the user's own.

A file is data that goes to a backend on this machine and nowhere else, so it may belong to anybody; it is read once, bounded.
"""

from __future__ import annotations

import os
import stat

from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.parse.prompt_list import LIMIT_BYTES, parse_prompts

OFF, DEFAULT = "off", "default"


def load_prompts(choice: str) -> tuple[str, ...]:
    """What `warm.prompts` names: none for off, the shipped set for default, else the file at that path. Raises ConfigError."""
    if choice == OFF:
        return ()
    if choice == DEFAULT:
        import importlib.resources  # with all that comes with it; nobody else in the daemon needs it

        shipped = importlib.resources.files("moetuned").joinpath("data/prompts.yaml")
        return parse_prompts("moetuned/data/prompts.yaml", shipped.read_text(encoding="utf-8"))
    return parse_prompts(choice, _read(choice))


def _read(path: str) -> str:
    """Raises ConfigError."""
    try:
        # Non-blocking: a FIFO in place of the file must not make the daemon wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError([Problem(path, "", None, "is no regular file")])
            data = b""
            while len(data) <= LIMIT_BYTES and (piece := os.read(descriptor, LIMIT_BYTES + 1)):
                data += piece
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError([Problem(path, "", None, f"cannot be read: {error.strerror or error}")]) from None
    if len(data) > LIMIT_BYTES:
        hint = f"is larger than {LIMIT_BYTES >> 10} KiB; that is no list of short prompts"
        raise ConfigError([Problem(path, "", None, hint)])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(path, "", None, "is not UTF-8 text; save it as UTF-8", line)]) from None
