"""Asks the service manager about units while it may be of no help: an answer, or none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from moetuned.host.program_search import ENVIRONMENT, find_program

_SECONDS = 10.0


def ended_units(units: Sequence[str]) -> frozenset[str]:
    """Those that do not run (any more), as far as the manager says so. Blocks for at most 10 s."""
    said = ask_manager("show", "--property=Id,ActiveState", "--", *units)
    if said is None:
        return frozenset()
    told = (dict(line.partition(b"=")[::2] for line in each.splitlines()) for each in said.split(b"\n\n"))
    ended = {each.get(b"Id") for each in told if each.get(b"ActiveState") in (b"inactive", b"failed")}
    return frozenset(unit for unit in units if unit.encode() in ended)


def ask_manager(*arguments: str) -> bytes | None:
    """What systemctl prints, whatever its exit code; None: it cannot be run, or does not end within 10 s."""
    systemctl = find_program("systemctl")
    if systemctl is None:
        return None
    try:
        return subprocess.run(
            (systemctl, "--no-ask-password", *arguments),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
