"""Inference servers that moetuned knows, one file each, found by name.

A backend file has `NAME`, `ABILITIES`, `SETTINGS`, `VARIABLES`, `recognise(argv)` and `describe(argv, environ)`, all pure; its docstring is its
manual entry: a first paragraph that says what it is, then `Recognised by:`, `Read from:` and `Tells:`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from moetuned.parse.generic_process import is_of
from moetuned.schema.backend_abilities import Abilities, SettingNames
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend


class BackendKind(Protocol):
    """What a file in this package provides."""

    NAME: str
    ABILITIES: Abilities
    SETTINGS: Mapping[str, tuple[SettingNames, ...]]
    """How a restart may change what (`host.service.VALUES`); what is not in it cannot be changed from outside."""
    VARIABLES: tuple[str, ...]
    """Names of the environment's variables that `describe` needs; no others are read."""

    def recognise(self, argv: Sequence[str]) -> bool:
        """Whether a process with this command line is such a backend."""
        ...

    def describe(self, argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
        """What its command line and those variables say."""
        ...


@functools.cache
def names() -> tuple[str, ...]:
    """Kinds that exist, sorted: a file `llama_server.py` is the kind "llama-server"."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)))


@functools.cache
def load(name: str) -> BackendKind:
    """The kind called `name`. Raises LookupError that lists the kinds there are."""
    if name not in names():
        raise LookupError(f"{name!r} is no kind of backend; there are: {', '.join(names())}")
    return cast("BackendKind", importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))


def find(argv: Sequence[str]) -> BackendKind | None:
    """The kind that recognises this command line; None when none does."""
    return next((kind for kind in map(load, names()) if kind.recognise(argv)), None)


def finder_of(entries: Sequence[Backend]) -> Callable[[Sequence[str]], BackendKind | None]:
    """`find` that also knows the servers of kind "generic" that the config's `entries` describe."""
    own = tuple(entry.generic for entry in entries if entry.generic is not None)

    def find_also(argv: Sequence[str]) -> BackendKind | None:
        return find(argv) or (load("generic") if any(is_of(each, argv) for each in own) else None)

    return find_also if own else find


def abilities(name: str) -> Abilities | None:
    """What the kind called `name` can do; None when there is no such kind."""
    return load(name).ABILITIES if name in names() else None
