"""Has a llama-server write its slots to files before a restart and read them after it; the files are named here and removed here.

Runs in a lane: it waits for the server and for disks. Of what the server answers nothing counts but yes and no: sizes are the files' own,
and what the file system has left is asked before each. The server takes a file name only, for the directory that it was started with.
"""

from __future__ import annotations

import logging
import os
import re
import time

import msgspec

from moetuned.decide.slot_saving import SlotFile, file_bytes, may_write, to_restore, to_save, too_long
from moetuned.host.api_key import read_api_key
from moetuned.host.backend_http import ask_once
from moetuned.host.own_sha256 import sha256
from moetuned.host.process_place import same_file
from moetuned.parse.http_response import HttpError
from moetuned.parse.llama_http import parse_llama_http
from moetuned.parse.llama_slot_action import parse_slot_action
from moetuned.schema.sample import Slot
from moetuned.schema.units import format_bytes

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 3.0
"""For what takes no disk."""


class SavedSlots(msgspec.Struct, frozen=True):
    """Files in `directory`. `skipped`: slots that were not saved, and why, sentences. `lost`: how many conversations were not,
    also because they do not fit the context to come; of a slot that nobody has used it is not known whether it holds one.
    """

    directory: str
    files: tuple[SlotFile, ...] = ()
    skipped: tuple[str, ...] = ()
    lost: int = 0


def directory_of(pid: int, said: str) -> str:
    """Where the server's `--slot-save-path` is for us. Raises OSError where it sees other file systems than we do, or has ended."""
    path = said if os.path.isabs(said) else os.path.join(os.readlink(f"/proc/{pid}/cwd"), said)
    apart = os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
    if apart and not same_file(path, f"/proc/{pid}/root{path}"):
        raise OSError(f"{said} is in a container of its own")
    if not os.path.isdir(path):
        raise NotADirectoryError(f"{path} is no directory")
    return path


def save_slots(
    backend: str, url: str, pid: int, said: str, kv_bytes_per_token: int, longest_tokens: int, until: float
) -> SavedSlots:
    """Save what fits a context of `longest_tokens` and the disk, until then (monotonic). Raises OSError, HttpError, ValueError."""
    directory = directory_of(pid, said)
    key = read_api_key(pid)
    token = os.urandom(8).hex()
    files: list[SlotFile] = []
    skipped: list[str] = []
    lost = 0
    slots = _slots(url, key)
    told = {slot.slot_id for slot in slots if slot.prompt_tokens}
    for slot_id, tokens in to_save(slots, longest_tokens):
        left = until - time.monotonic()
        room = os.statvfs(directory)
        size = file_bytes(tokens, kv_bytes_per_token)
        error: str | None = None
        if left <= 0:
            error = "no time is left"
        elif not may_write(size, room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize):
            error = f"{directory} has no room for {format_bytes(size)}"
        else:
            name = f"{_prefix(backend)}{token}-{slot_id}.kv"
            error, count = _act(url, slot_id, "save", name, left, key)
            if error is None and count:
                files.append(SlotFile(name, min(tokens, count)))
                continue
            remove(directory, (name,))
        if error is not None:
            skipped.append(f"slot {slot_id}: {error}")
            lost += slot_id in told
    return SavedSlots(directory, tuple(files), tuple(skipped), lost + too_long(slots, longest_tokens))


def restore_slots(url: str, pid: int, saved: SavedSlots, until: float) -> int:
    """Have the server `pid` read what fits it, until then (monotonic), and remove the files. How many it read."""
    count = 0
    try:
        key = read_api_key(pid)
        for slot_id, file in to_restore(saved.files, _slots(url, key)):
            left = until - time.monotonic()
            if left <= 0:
                break
            error, tokens = _act(url, slot_id, "restore", file.name, left, key)
            count += error is None and bool(tokens)
            if error is not None:
                log.info("slot %d did not take a conversation of %d tokens: %s", slot_id, file.tokens, error)
    finally:
        remove(saved.directory, tuple(file.name for file in saved.files))
    return count


def remove(directory: str, names: tuple[str, ...]) -> None:
    """Remove files; those that are gone already are no matter."""
    for name in names:
        try:
            os.unlink(os.path.join(directory, name))
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("cannot remove %s from %s: %s", name, directory, error.strerror)


def remove_old(backend: str, pid: int, said: str) -> int:
    """Remove what an earlier daemon had this backend save and did not live to remove; how many. Raises OSError."""
    directory = directory_of(pid, said)
    ours = re.compile(re.escape(_prefix(backend)) + r"[0-9a-f]{16}-\d{1,20}\.kv")
    with os.scandir(directory) as entries:
        names = tuple(
            entry.name for entry in entries if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        )
    remove(directory, names)
    return len(names)


def _prefix(backend: str) -> str:
    """No name of another backend's files begins so; llama-server allows fewer characters than a backend's name has."""
    return f"moetuned-{sha256(backend.encode()).hexdigest()[:16]}-"


def _slots(url: str, key: str | None) -> tuple[Slot, ...]:
    """Raises HttpError when the server does not tell them."""
    status, body = ask_once(url, "/slots", _ANSWER_SECONDS, api_key=key)
    told = parse_llama_http({"/slots": body if status == 200 else f"!{status}"})
    if told is None or told.slots is None:
        raise HttpError(f"/slots was answered with {status}")
    return told.slots


def _act(
    url: str, slot_id: int, action: str, name: str, seconds: float, key: str | None
) -> tuple[str | None, int | None]:
    """What went wrong, and tokens."""
    try:
        status, body = ask_once(url, f"/slots/{slot_id}?action={action}", seconds, body={"filename": name}, api_key=key)
    except TimeoutError:
        return "it took too long", None
    except (OSError, HttpError) as error:
        return str(error), None
    return (None, parse_slot_action(body)) if status == 200 else (f"it was refused with {status}", None)
