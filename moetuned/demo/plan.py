"""Sizes of the demo: a model, a cgroup that holds about 60 % of it besides the KV cache, and what squeezes it. Pure."""

from __future__ import annotations

import msgspec

MIB = 1 << 20
PREFERRED_CONTEXT = 24576
MINIMUM_CONTEXT = 2048
PROMPT_CACHE_MIB = 64
HEADS_KV = 8
"""Of the made model: a token of context then costs so much that a shorter one gives back what the hog took."""
HOLDS_RATIO = 0.60
SQUEEZED_RATIO = 0.10
"""One topic of a made model uses about a third of its bytes."""
PROCESS_BYTES = 112 * MIB
"""A llama.cpp's own memory besides the KV cache: buffers, code, page tables."""
HOG_LEAVES_RATIO = 0.04
"""Headroom the hog leaves: half of where the memory counts as near its limit."""
HOG_BYTES_PER_SECOND = 48 * MIB


class Sizes(msgspec.Struct, frozen=True):
    """All in bytes."""

    model_bytes: int
    kv_bytes_per_token: int

    @property
    def kv_bytes(self) -> int:
        """KV cache of the preferred context."""
        return PREFERRED_CONTEXT * self.kv_bytes_per_token

    @property
    def limit_bytes(self) -> int:
        """The cgroup's limit."""
        return int(self.model_bytes * HOLDS_RATIO) + self.kv_bytes + PROCESS_BYTES

    @property
    def squeezed_bytes(self) -> int:
        """The limit while it is squeezed: less than one topic needs."""
        return int(self.model_bytes * SQUEEZED_RATIO) + self.kv_bytes + PROCESS_BYTES

    def hog_bytes(self, headroom_bytes: int) -> int:
        """What the hog takes of the headroom there is."""
        return max(0, headroom_bytes - int(self.limit_bytes * HOG_LEAVES_RATIO))
