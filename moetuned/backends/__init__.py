"""Inference servers that moetuned knows, one file each, found by name.

A backend file has `NAME`, `recognise(argv)` and `describe(argv, environ)`, all pure; its docstring is its manual entry.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from moetuned.schema.backend_description import BackendDescription


class BackendKind(Protocol):
    """What a file in this package provides."""

    NAME: str

    def recognise(self, argv: Sequence[str]) -> bool:
        """Whether a process with this command line is such a backend."""
        ...

    def describe(self, argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
        """What its command line and LLAMA_ARG_* environment say."""
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
