"""What llama-server answers when a slot was saved to a file or read from one (POST /slots/N?action=save|restore)."""

from __future__ import annotations

from typing import Any

import msgspec

from moetuned.parse.http_fields import body_of, count_of, decoded_by


class _Answer(msgspec.Struct):
    n_saved: Any = None
    n_restored: Any = None


_ANSWER = msgspec.json.Decoder(_Answer)


def parse_slot_action(body: str) -> int | None:
    """Tokens that were saved, or read again; None for a body that says neither."""
    decoded = decoded_by(_ANSWER, body_of(body))
    if not isinstance(decoded, _Answer):
        return None
    saved = count_of(decoded.n_saved)
    return count_of(decoded.n_restored) if saved is None else saved
