"""Checks the command of a script of the user's that restarts a backend. Who may write the script is looked at when it is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence


def script_problems(command: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with script and arguments, a sentence each; () when nothing is."""
    return tuple(_problems(command))


def _problems(command: Sequence[str]) -> Iterator[str]:
    if not command:
        yield "is empty: write the script's path, then its arguments"
        return
    script = command[0]
    if not script.startswith("/"):
        yield f"{script!r} must be an absolute path: the script runs as root, so no directories are searched for it"
    elif script.endswith("/") or "/../" in script:
        yield f"{script!r} is no path of a script"
    elif re.search(r"\s-|\s\{", script):
        yield f"{script!r} holds more than the script; write every word as its own item"
    if "{" in script:
        yield f"{script!r} has a placeholder, but which script is run may not depend on a value"
    for word in command:
        if "\0" in word:
            yield f"{word!r} holds a NUL, which no argument can"
