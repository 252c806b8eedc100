"""What the memory under a backend's tightest limit holds, part by part, so that they add up to what was measured.

Measured are the backend's own memory, what of the model is locked, all that cannot be given back, and page cache. Of the backend's own
the KV cache is known by its settings (it is allocated whole at the start), and what it grew by since it had loaded is its prompt
cache, checkpoints, or a leak; what is left of it are buffers, the program, and weights that were repacked.
"""

from __future__ import annotations

import msgspec

from moetuned.schema.snapshot import BackendView

LEAST_SHARE = 0.02
"""Of its own memory; less than that it grew by is not told apart."""
_GROWN = {"leak": "grown since its start (a leak)", "prompt_cache": "prompt cache"}


class MemoryPart(msgspec.Struct, frozen=True):
    """One part, bytes. `sign`: one letter or shade of a bar; `label` is for people. `held`: it cannot be given back."""

    sign: str
    label: str
    bytes: int
    held: bool = True


def memory_parts(view: BackendView) -> tuple[MemoryPart, ...]:
    """Those that are not empty, what cannot be given back first; () where the limit or what is used of it is unknown."""
    memory = view.memory
    held, limit = memory.unreclaimable_bytes, memory.limit_bytes
    if held is None or not limit:
        return ()
    kept = max(0, min(memory.kept_bytes, held))
    held -= kept
    locked = max(0, min(view.protect.locked_bytes, held))
    parts = [MemoryPart("L", "locked weights", locked)]
    if memory.backend_anonymous_bytes is None:
        parts.append(MemoryPart("█", "in use that cannot be given back", held - locked))
    else:
        own = min(held - locked, memory.backend_anonymous_bytes + (memory.backend_swap_bytes or 0))
        parts += _own(view, own)
        parts.append(MemoryPart("O", "others", held - locked - own))
    parts.append(MemoryPart("M", "page cache that is kept (memory.min)", kept))
    held += kept
    cache = max(0, min((memory.file_cache_bytes or 0) - locked - kept, limit - held))
    parts.append(MemoryPart("▒", "page cache", cache, held=False))
    parts.append(MemoryPart("░", "free", max(0, limit - held - cache), held=False))
    return tuple(part for part in parts if part.bytes)


def _own(view: BackendView, own: int) -> list[MemoryPart]:
    memory = view.memory
    cache = max(0, min(memory.kv_cache_bytes or 0, own))
    start = memory.backend_start_bytes
    grown = 0 if start is None else max(0, min(own - start, own - cache))
    grown = grown if grown >= LEAST_SHARE * own else 0
    label = _GROWN.get(memory.growth_kind or "", "prompt cache and what else it grew by")
    rest = "buffers" if cache else "the backend's own"
    return [
        MemoryPart("K", "KV cache", cache),
        MemoryPart("P", label, grown),
        MemoryPart("B", rest, own - cache - grown),
    ]
