"""The container engine of a backend answers.

For: restarts of containers.

Tried: `docker version` or `podman version`.

No: there is no such program, or its daemon refuses this user.

Unknown: it did not answer in time, or says something else.

Do: install it, start its daemon, and leave AF_UNIX in `RestrictAddressFamilies=`.
"""

from __future__ import annotations

from moetuned.host.engine_cli import command_line
from moetuned.host.program_search import find_program
from moetuned.host.rehearsal_answers import YES, no, unknown
from moetuned.host.service import ServiceError
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()
_SECONDS = 3.0
_REFUSALS = (b"permission denied", b"not permitted")


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """For each backend that is a container."""
    return tuple(
        Need(one.target, (Action.RESTART,), one.name)
        for one in facts.backends
        if one.by == "docker" and one.target is not None
    )


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    if find_program(need.subject) is None:
        return no(f"there is no program {need.subject} in the system's directories", f"install {need.subject}")
    try:
        said = command_line(need.subject)(("version",), _SECONDS)
    except ServiceError as error:
        return unknown(str(error))
    if said.code == 0:
        return YES
    line = (said.errors or b"no reason is given").decode("utf-8", "replace").strip().splitlines()[-1][:300]
    refused = any(word in said.errors.lower() for word in _REFUSALS)
    return no(line, "run moetuned as root") if refused else unknown(line)
