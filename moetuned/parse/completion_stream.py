"""How many tokens a streamed answer of llama-server's /completion cost: events `data: {…}`, the last of which has the counts.

Each body is text from a process we do not trust: what has another shape says nothing, and nothing raises.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_TOKENS = 1 << 24


class CompletionCounts(msgspec.Struct, frozen=True):
    """Tokens of the prompt that were processed, and tokens that were generated."""

    prompt_tokens: int
    predicted_tokens: int

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.predicted_tokens


class _Event(msgspec.Struct):
    stop: Any = None
    tokens_evaluated: Any = None
    tokens_predicted: Any = None


_EVENT = msgspec.json.Decoder(_Event)


def parse_completion(body: str) -> CompletionCounts | None:
    """Counts of a whole answer, streamed or in one piece; None when it has none (an error, or cut off)."""
    for line in reversed(body.splitlines()):
        text = line.removeprefix("data:").strip()
        if not text.startswith("{"):
            continue
        try:
            event = _EVENT.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        prompt, predicted = _count(event.tokens_evaluated), _count(event.tokens_predicted)
        if event.stop is not True or prompt is None or predicted is None:
            return None
        return CompletionCounts(prompt, predicted)
    return None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < MAX_TOKENS else None
