"""What an action may need of the machine, tried in a harmless form: one file each, found by name; its docstring is its manual entry.

A file `swap_calls.py` holds a docstring of a first sentence and the paragraphs `For:`, `Tried:`, `No:`, `Unknown:` and `Do:`; `CALLS`,
the calls and files it speaks for; `needs(facts)`, what there is to try for a config; and `rehearse(need, facts)`, which tries one in a
process of its own that may be killed for it, changes nothing and leaves nothing behind. OSError out of it is an answer, too
(`host.rehearsal_answers`). A file is imported only in the short process that rehearses.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType

import msgspec

from moetuned.parse.manual_entry import manual_entry
from moetuned.schema.capability import Found, Need, RehearsalFacts

_PARAGRAPHS = {"actions": "For:", "tried": "Tried:", "no": "No:", "unknown": "Unknown:", "cure": "Do:"}


class Manual(msgspec.Struct, frozen=True):
    """A rehearsal's manual entry: what it is, what for, how it is tried, what no and unknown mean, what to do."""

    summary: str
    actions: str
    tried: str
    no: str
    unknown: str
    cure: str


class Rehearsal(msgspec.Struct, frozen=True):
    """One of them."""

    name: str
    manual: Manual
    calls: tuple[str, ...]
    needs: Callable[[RehearsalFacts], tuple[Need, ...]]
    rehearse: Callable[[Need, RehearsalFacts], Found]


def names() -> tuple[str, ...]:
    """All of them, in order, without importing any."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> Rehearsal:
    """One by its file's name. Raises ModuleNotFoundError."""
    module: ModuleType = importlib.import_module(f"{__name__}.{name}")
    return Rehearsal(name, parse_manual(module.__doc__ or ""), module.CALLS, module.needs, module.rehearse)


def parse_manual(docstring: str) -> Manual:
    """The manual entry in a docstring; a paragraph that is missing is empty."""
    summary, found = manual_entry(docstring, _PARAGRAPHS)
    return Manual(summary=summary, **found)
