"""Waits until units that setup started stay up, or says why one does not: how its process ended, and the last it said."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from moetuned.decide.unit_start import UnitStart, end_words, judge_start
from moetuned.host.service import ServiceError
from moetuned.host.system_program import ProgramError, ask_program
from moetuned.host.systemd_unit import unit_status
from moetuned.parse.unit_status import UnitStatus

MOST_SECONDS = 60.0
_POLL_SECONDS = 0.5
_JOURNAL_SECONDS = 5.0
_JOURNAL_BYTES = 64 << 10
_MOST_CHARACTERS = 300


def wait_for_units(
    units: Sequence[str],
    draw: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Those that do not stay up, and why, one sentence each. At most a minute: what is still starting then is none of them.

    One that systemd says nothing of is left out.
    """
    failed: dict[str, str] = {}
    first: dict[str, UnitStatus] = {}
    left = list(units)
    until = clock() + MOST_SECONDS
    while left:
        for unit in tuple(left):
            try:
                status = unit_status(unit)
            except ServiceError:
                left.remove(unit)
                continue
            standing = judge_start(status, first.setdefault(unit, status), clock())
            if standing is UnitStart.FAILED:
                failed[unit] = f"{unit} does not stay up: {end_words(status)}{_last_words(unit)}"
            if standing is not UnitStart.STARTING:
                left.remove(unit)
        if not left or clock() >= until:
            break
        draw(f"waiting for {left[0]} to stay up")
        sleep(_POLL_SECONDS)
    return failed


def _last_words(unit: str) -> str:
    """The last line of its processes in the journal; of systemd about it where they said nothing."""
    for match in (f"_SYSTEMD_UNIT={unit}", f"UNIT={unit}"):
        arguments = ("--no-pager", "--quiet", "--boot", "--output=cat", "--lines=5", match)
        try:
            lines = ask_program("journalctl", arguments, "systemd", _JOURNAL_SECONDS, _JOURNAL_BYTES).splitlines()
        except ProgramError:
            return ""
        if said := [line.strip() for line in lines if line.strip()]:
            last = said[-1]
            return (
                f". The last in its journal: {last if len(last) <= _MOST_CHARACTERS else last[:_MOST_CHARACTERS] + '…'}"
            )
    return ""
