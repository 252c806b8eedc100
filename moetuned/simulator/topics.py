"""Topics: groups of byte values that a prompt is made of.

The models this package writes are given a vocabulary of single bytes whose embeddings lie around one centre per topic, so
that a real llama.cpp sends a prompt's tokens to that topic's experts; the stand-in's router uses the same groups. The
printable ASCII characters are cut into `TOPICS` runs of `CHARACTERS`, so that a prompt of one topic can be typed.
"""

from __future__ import annotations

import random

TOPICS = 8
CHARACTERS = 12
_FIRST = 33


def topic_of_byte(value: int) -> int:
    """Topic (0 to TOPICS - 1) of one byte value."""
    if _FIRST <= value < _FIRST + TOPICS * CHARACTERS - 2:
        return (value - _FIRST) // CHARACTERS
    return value % TOPICS


def topic_of_text(text: bytes) -> int:
    """The topic most bytes of `text` belong to; the lowest one when several do, 0 for an empty text."""
    counts = [0] * TOPICS
    for value in text:
        counts[topic_of_byte(value)] += 1
    return counts.index(max(counts))


def prompt_for_topic(topic: int, characters: int, seed: int) -> str:
    """A random prompt of printable ASCII characters that all belong to `topic` (taken modulo TOPICS)."""
    chooser = random.Random(f"{topic}/{seed}")
    letters = [chr(value) for value in range(33, 127) if topic_of_byte(value) == topic % TOPICS]
    return "".join(chooser.choice(letters) for _ in range(characters))
