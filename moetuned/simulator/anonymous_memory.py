"""Anonymous memory as a backend holds it: the KV cache, fixed at the start, and the prompt cache, which grows."""

from __future__ import annotations

import mmap
from collections import deque

_PIECE_BYTES = 32 << 20


class AnonymousMemory:
    """`size_bytes` of private memory, every page written (llama.cpp zeroes its KV cache too). Raises OSError."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._map = mmap.mmap(-1, max(size_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self._map)
        for start in range(0, size_bytes, _PIECE_BYTES):
            pages = self._view[start : start + _PIECE_BYTES : mmap.PAGESIZE]
            pages[:] = b"\1" * len(pages)

    def touch(self, offset: int, length: int) -> int:
        """Read one byte of every page in the range (swapped pages come back); returns the pages."""
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        return len(bytes(self._view[start : min(offset + length, self.size_bytes) : mmap.PAGESIZE]))

    def close(self) -> None:
        """Give the memory back to the kernel."""
        self._view.release()
        self._map.close()


class PromptCache:
    """States of finished requests, the oldest given up first. `limit_bytes` None: no limit, 0: off."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._entries: deque[AnonymousMemory] = deque()
        self.used_bytes = 0

    def save(self, state_bytes: int) -> bool:
        """Keep a state of this size; False when it is larger than the whole cache. Raises OSError."""
        if self._limit_bytes is not None:
            if state_bytes > self._limit_bytes:
                return False
            while self.used_bytes + state_bytes > self._limit_bytes:
                oldest = self._entries.popleft()
                self.used_bytes -= oldest.size_bytes
                oldest.close()
        self._entries.append(AnonymousMemory(state_bytes))
        self.used_bytes += state_bytes
        return True
