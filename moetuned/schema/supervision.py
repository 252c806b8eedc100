"""Who runs a backend, how it was started, why it was restarted, and what people may ask of it: the documented JSON of both.

Fields are added, never renamed.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RestartCause(StrEnum):
    """Why moetuned started a backend again: to free memory, to give back what that took, because somebody asked for it, or
    because it had ended by itself.
    """

    RELIEF = "relief"
    RETURN = "return"
    BY_HAND = "by_hand"
    EXIT = "exit"


class Restart(msgspec.Struct, frozen=True):
    """One restart, begun at `wall_seconds` (Unix time); `why` is one sentence. Context lengths are tokens.

    `took_seconds`: from then until it was healthy; None: it is not yet, or never was. `failed`: why who runs it did not do it, one sentence.
    """

    wall_seconds: float
    cause: RestartCause
    why: str
    context_before: int | None = None
    context_after: int | None = None
    took_seconds: float | None = None
    failed: str | None = None


class Change(msgspec.Struct, frozen=True):
    """A setting that a restart may change. `possible`: whether here; `how` says how, or why not. `now`: its value, None: not known."""

    name: str
    now: str | None
    possible: bool
    how: str


class SupervisionView(msgspec.Struct, frozen=True):
    """Who runs it. `by`: what the config says (process, ...); None: moetuned only watches it. `who` is that for people.

    `stage`: where it is in its life (stopped, loading, ready, stopping, waiting, broken); None without supervision. `waits`: what a
    restart that somebody asked for waits for. `paused`: why its process is stopped, when moetuned did that. `restart_seconds`: how long a
    restart takes, None: unknown, `restart_source` says why, or from what it is known. `restarts`: the last ones, oldest first.
    `record`: where it is recorded for the next daemon. `log`: where its output is; None: unknown.
    """

    by: str | None = None
    who: str = ""
    stage: str | None = None
    waits: str | None = None
    paused: str | None = None
    restart_seconds: float | None = None
    restart_source: str = ""
    restarts: tuple[Restart, ...] = ()
    restarts_by_cause: dict[str, int] = {}
    record: str | None = None
    log: str | None = None


class LaunchView(msgspec.Struct, frozen=True):
    """How it was started. `command` has *** for all that may be secret; empty: not known yet.

    `trained_context`: tokens the model was trained for. `context_by_hand`: whether somebody chose the context that it has, or gets.
    """

    command: tuple[str, ...] = ()
    slots: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    trained_context: int | None = None
    context_by_hand: bool = False
    changes: tuple[Change, ...] = ()


class BackendDo(StrEnum):
    """What somebody may ask of a backend."""

    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"


class BackendAnswer(msgspec.Struct, frozen=True):
    """The answer of POST /v1/backend. `done`: False for a dry run. `asked_wall_seconds`: when, by the daemon's clock (Unix time).

    `context_before` and `context_after` (tokens), `busy`: requests that are being answered (None: unknown), `wait_seconds`: how long a
    restart waits for them at most; 0: it cuts them off. `runs`: whether a process of it is known. `expected_seconds`: until it is healthy again; None: unknown,
    `expected_source` says why, or from what it is known.
    """

    backend: str
    do: BackendDo
    done: bool
    asked_wall_seconds: float
    context_before: int | None = None
    context_after: int | None = None
    busy: int | None = None
    wait_seconds: float = 0.0
    expected_seconds: float | None = None
    expected_source: str = ""
    runs: bool = True
