"""systemd answers systemctl, and lets this user act.

For: restarts of units, limits of their cgroups, and scopes of backends that moetuned starts.

Tried: `systemctl show --property=Version`, then `systemctl try-restart` of a unit that does not exist, which systemd checks for the right to and then does nothing about.

No: systemd refuses, or its bus cannot be reached from here (`RestrictAddressFamilies=` without AF_UNIX, a file system view without /run).

Unknown: systemd does not run here, or did not answer in time.

Do: run moetuned as root, and leave AF_UNIX in `RestrictAddressFamilies=`.
"""

from __future__ import annotations

from moetuned.host.rehearsal_answers import YES, no, unknown
from moetuned.host.system_program import ProgramError, ask_program
from moetuned.host.systemd_booted import is_booted
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()
_NOBODYS = "moetuned-rehearsal-of-no-unit.service"
_SECONDS = 3.0
_LIMIT_BYTES = 4096
_CURE = "run moetuned as root with AF_UNIX in RestrictAddressFamilies="
_REFUSALS = (
    "access denied",
    "authentication",
    "permission denied",
    "not permitted",
    "not authorized",
    "not supported by protocol",
)
_MISSING = ("not found", "not loaded", "no such")


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Units of backends, limits that are systemd's, and scopes."""
    found = [Need(one.target or "", (Action.RESTART,), one.name) for one in facts.backends if one.by == "systemd"]
    found += [Need(one.path, (Action.CHANGE_SETTING,)) for one in facts.settings if one.unit is not None]
    if is_booted():
        found += [Need("systemd-run --scope", (Action.START,), one.name) for one in facts.backends if one.scope]
    return tuple(found)


def rehearse(_need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    if not is_booted():
        return unknown("systemd does not run here")
    options = ("--no-ask-password", "--no-pager")
    try:
        ask_program("systemctl", (*options, "show", "--property=Version"), "systemd", _SECONDS / 2, _LIMIT_BYTES)
        ask_program(
            "systemctl", (*options, "try-restart", "--no-block", "--", _NOBODYS), "systemd", _SECONDS / 2, _LIMIT_BYTES
        )
    except ProgramError as error:
        return _understood(str(error))
    return YES


def _understood(said: str) -> Found:
    lowered = said.lower()
    if any(word in lowered for word in _REFUSALS):
        return no(said, _CURE)
    return YES if _NOBODYS in lowered and any(word in lowered for word in _MISSING) else unknown(said)
