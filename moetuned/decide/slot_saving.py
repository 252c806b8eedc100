"""Which conversations of a llama-server are saved to disk before a restart, which are read again after it, and why others are lost.

Pure. Measured with llama-server b11434: a slot's file is read again into a longer or shorter context and into any slot, as long as its tokens
fit; it is refused, and the server goes on with an empty slot, where they do not, where the KV type differs, and where the number of KV
streams does (one for each slot, one for all with a unified cache). Models with sliding windows or recurrent state are read anew in spite of
it, because their context checkpoints are not in the file (llama.cpp issues 25913, 28194).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.sample import Slot

FREE_SHARE = 20
FREE_BYTES = 1 << 30
"""Of the file system under them this part, and at least this much, stays free."""
_MARGIN_SHARE = 16
_MARGIN_BYTES = 1 << 20
"""A file holds the tokens themselves and some lines about them, too (measured: 3088 bytes a token for a cache of 3072)."""


class ConversationFacts(msgspec.Struct, frozen=True):
    """What is known of a backend and its slots. `unified`: all slots share one KV cache; `windows`: its model has layers that forget.

    None is unknown, but for `directory`: it was started without one.
    """

    url: str | None
    pid: int | None
    can_save: bool | None
    directory: str | None
    kv_bytes_per_token: int | None
    unified: bool | None = None
    windows: bool | None = None


class SlotFile(msgspec.Struct, frozen=True):
    """A conversation on disk. `tokens`: at most."""

    name: str
    tokens: int


def why_lost(facts: ConversationFacts, now: LaunchPlan, then: LaunchPlan) -> str | None:
    """Why no conversation goes on after a restart from `now` to `then`, the end of a sentence; None: those that fit do."""
    if facts.can_save is None:
        return "which kind of server that is, is not known yet"
    if not facts.can_save:
        return "its kind cannot save them"
    if facts.directory is None:
        return "it was started without --slot-save-path"
    if facts.url is None or facts.pid is None:
        return "it cannot be asked to save them"
    if facts.kv_bytes_per_token is None:
        return "how large they are is not known"
    if facts.windows:
        return "llama.cpp reads those of a model with sliding windows or recurrent state anew, saved or not"
    if then.cache_type != now.cache_type:
        return "saved ones do not fit another type of KV cache"
    if then.slots != now.slots and facts.unified is False:
        return "saved ones do not fit another number of slots that have a KV cache each"
    return None


def is_unified(slots: Sequence[Slot] | None, context_length: int | None) -> bool | None:
    """Whether the slots share one KV cache: each then has the whole context. One slot has it in any case; None: unknown."""
    lengths = [slot.context_length for slot in slots or () if slot.context_length is not None]
    if not lengths or context_length is None:
        return None
    return len(lengths) == 1 or min(lengths) * len(lengths) > context_length + 256 * len(lengths)


def to_save(slots: Sequence[Slot], longest_tokens: int) -> tuple[tuple[int, int], ...]:
    """Numbers of the slots to save and tokens of each at most, the longest conversation first.

    One that works on a request is not saved: it would be saved once it has ended. One that never had a request may hold what was read
    again after an earlier restart; its length is not told.
    """
    known, untold = [], []
    for slot in slots:
        if slot.processing is not False or slot.slot_id is None:
            continue
        if slot.prompt_tokens is not None:
            tokens = slot.prompt_tokens + (slot.decoded_tokens or 0)
            if 0 < slot.prompt_tokens < longest_tokens:
                known.append((slot.slot_id, tokens))
        elif slot.context_length is not None:
            untold.append((slot.slot_id, min(slot.context_length, longest_tokens)))
    return (*sorted(known, key=lambda each: -each[1]), *untold)


def too_long(slots: Sequence[Slot], longest_tokens: int) -> int:
    """How many conversations do not fit; of a slot that works on a request it is told what becomes of that, so it is not counted."""
    return sum(slot.processing is False and (slot.prompt_tokens or 0) >= longest_tokens for slot in slots)


def file_bytes(tokens: int, kv_bytes_per_token: int) -> int:
    """Size of the file of a conversation, at most."""
    size = tokens * (kv_bytes_per_token + 16)
    return size + size // _MARGIN_SHARE + _MARGIN_BYTES


def may_write(size_bytes: int, free_bytes: int, total_bytes: int) -> bool:
    """Whether a file system has room for that, and much left then."""
    return free_bytes - size_bytes >= max(FREE_BYTES, total_bytes // FREE_SHARE)


def to_restore(files: Sequence[SlotFile], slots: Sequence[Slot]) -> tuple[tuple[int, SlotFile], ...]:
    """Which file goes into which slot, the longest first, each into the smallest slot that nobody has used and that it fits."""
    free = sorted(
        (slot.context_length, slot.slot_id)
        for slot in slots
        if slot.processing is False
        and slot.task_id is None
        and slot.context_length is not None
        and slot.slot_id is not None
    )
    found = []
    for file in sorted(files, key=lambda each: -each.tokens):
        fits = next((each for each in free if each[0] > file.tokens), None)
        if fits is not None:
            free.remove(fits)
            found.append((fits[1], file))
    return tuple(found)
