"""Containers as an engine (docker, podman) tells of them, and what is recorded while one is made anew."""

from __future__ import annotations

import msgspec

BACKEND_LABEL = "moetuned.backend"
TOKEN_LABEL = "moetuned.made"  # noqa: S105  the name of a label
"""Label of the containers that moetuned made; its value is a random text that is recorded here before: an image cannot bring it along."""


class ContainerFacts(msgspec.Struct, frozen=True):
    """One container as `inspect` tells of it.

    `pid`: of its first process, in the engine's pid namespace; None: none runs. `policy`: its restart policy as the command line takes
    it ("no", "always", "on-failure:3"). `token`: value of `TOKEN_LABEL`. `stopped_by_user` None: the engine does not tell.
    """

    id: str
    name: str
    status: str
    pid: int | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    policy: str = "no"
    removed_at_end: bool = False
    stopped_by_user: bool | None = None
    token: str | None = None


class ContainerChange(msgspec.Struct, frozen=True):
    """A container that is being replaced, as recorded before the first step.

    `words`: what the new one is made of, after the engine's own options. `old_id` None: there was none. `committed`: the old one was
    touched, or is about to be; from then on an interrupted change is finished, not taken back. `undoing`: it failed; the old one comes back.
    `strays`: tokens of changes before this one that were taken back, whose new container may have come late.
    """

    token: str
    words: tuple[str, ...]
    values: dict[str, str]
    old_id: str | None = None
    old_own: bool = False
    old_policy: str = "no"
    old_ran: bool = False
    committed: bool = False
    undoing: bool = False
    strays: tuple[str, ...] = ()


class ContainerRecord(msgspec.Struct, frozen=True):
    """What is known of the container of a backend. `token`: of the one that moetuned made last, with `values`; None: it made none.

    `strays`: of the changes that were last taken back.
    """

    token: str | None = None
    values: dict[str, str] = {}
    strays: tuple[str, ...] = ()
    change: ContainerChange | None = None


class ScriptRecord(msgspec.Struct, frozen=True):
    """What the user's script was last run with to its good end; `trying`: what it is being run with now."""

    values: dict[str, str] = {}
    trying: dict[str, str] | None = None
