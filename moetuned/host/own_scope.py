"""A unit of its own for each backend that is a child of the daemon: a scope of systemd, systemd-run(1), where systemd runs.

With it a backend has its own cgroup, so that its memory, page cache and OOM kills are told apart from the daemon's and from those of the
next one, and its output has its own budget in the journal. The process stays the daemon's child: `systemd-run --scope` asks for the scope,
then becomes the program.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from moetuned.host.program_search import find_program
from moetuned.host.systemd_booted import is_booted

SLICE = "moetuned.slice"


_HIERARCHIES = ("", "/unified", "/systemd")
_MOST = 9


def scope_name(backend: str, number: int = 1) -> str:
    """The scope's name; `backend` has only characters that a unit's may have."""
    return f"moetuned-backend-{backend}{'' if number == 1 else f'-{number}'}.scope"


def is_scope_of(backend: str, name: str) -> bool:
    """Whether a unit's name is one of a scope that is made for this backend."""
    return name in [scope_name(backend, number) for number in range(1, _MOST + 1)]


def free_name(backend: str, root: str = "/sys/fs/cgroup") -> str:
    """The first name that no scope has: what the process before left running keeps the scope that it is in."""
    for number in range(1, _MOST):
        name = scope_name(backend, number)
        if not any(os.path.isdir(f"{root}{hierarchy}/{SLICE}/{name}") for hierarchy in _HIERARCHIES):
            return name
    return scope_name(backend, _MOST)


def in_scope(backend: str, argv: Sequence[str]) -> list[str] | None:
    """`argv` run in the backend's own scope, its output in the journal as `moetuned-NAME`; None: no systemd to be asked, or not by us.

    Nothing stays of the scope once its last process has ended, also when that failed.
    """
    run = find_program("systemd-run")
    if run is None or not is_booted() or os.geteuid() != 0:
        return None
    options = ("--scope", "--quiet", "--collect", f"--unit={free_name(backend)}", f"--slice={SLICE}")
    return [run, *options, "--", *argv]


def in_journal(backend: str, argv: Sequence[str]) -> list[str]:
    """`argv` run by systemd-cat(1) where this process's own output goes to the journal: a stream that outlives the daemon's."""
    cat = find_program("systemd-cat") if "JOURNAL_STREAM" in os.environ else None
    return list(argv) if cat is None else [cat, f"--identifier=moetuned-{backend}", "--", *argv]
