"""What is kept of each alert sink over a restart, one small file each: which begins it was told, what is held back, what waits.

A file that makes no sense is set aside; a sink that no config names any more is forgotten. Written off the loop, read at the start.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Literal

import msgspec

from moetuned.decide.alert_gate import Gate
from moetuned.decide.alert_queue import Outbox
from moetuned.host.durable_file import make_private_directory, read_private, remove_durably, replace_durably

LIMIT_BYTES = 2 << 20
_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62})\.json")


class KeptSink(msgspec.Struct, frozen=True):
    """One sink. `kind`: what it was; `boot_id`: of the boot that it was written in."""

    version: Literal[1]
    kind: str
    boot_id: str
    gate: Gate
    outbox: Outbox


def read(name: str, kind: str, directory: str) -> tuple[KeptSink | None, str | None]:
    """What is kept of the sink, and what is to be said of it in one sentence. A file of another kind of sink is none of it."""
    path = _path(name, directory)
    try:
        text = read_private(path, LIMIT_BYTES)
        if not text:
            return None, None
        kept = msgspec.json.decode(text, type=KeptSink)
    except OSError as error:
        return (
            None,
            f"what waits for the alert sink {name} cannot be read from {path}: {error.strerror}; it begins anew",
        )
    except (msgspec.MsgspecError, ValueError) as error:
        with contextlib.suppress(OSError):
            remove_durably(path, keep_as=f"{path}.bad")
        return None, f"what waited for the alert sink {name} makes no sense ({error}); it is set aside as {path}.bad"
    if kept.kind != kind:
        lost = len(kept.outbox.waiting)
        note = f"the alert sink {name} was of kind {kept.kind}: {lost} alerts that waited for that are dropped"
        return None, note if lost else None
    return kept, None


def write(name: str, kept: KeptSink, directory: str) -> None:
    """Keep it, in one step. Raises OSError."""
    make_private_directory(directory)
    replace_durably(_path(name, directory), msgspec.json.encode(kept))


def forget_others(names: set[str], directory: str) -> list[str]:
    """Remove what is kept of sinks that are none of `names`; a sentence for each that alerts waited for. Raises OSError."""
    said: list[str] = []
    try:
        files = os.listdir(directory)
    except FileNotFoundError:
        return said
    for file in files:
        match = _FILE.fullmatch(file)
        if match is None or match[1] in names:
            continue
        path = os.path.join(directory, file)
        try:
            waiting = len(msgspec.json.decode(read_private(path, LIMIT_BYTES), type=KeptSink).outbox.waiting)
        except (OSError, msgspec.MsgspecError, ValueError):
            waiting = 0
        remove_durably(path)
        if waiting:
            said.append(
                f"the config has no alert sink {match[1]} any more: {waiting} alerts that waited for it are dropped"
            )
    return said


def _path(name: str, directory: str) -> str:
    return os.path.join(directory, f"{name}.json")
