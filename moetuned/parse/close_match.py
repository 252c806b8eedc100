"""The known word that was most likely meant by one that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def close_match(word: str, known: Iterable[str], least_ratio: float = 0.6) -> str | None:
    """The nearest of `known`; None where none is near. `least_ratio`: of what both words share, 0 to 1."""
    import difflib  # only who makes a mistake needs it

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=least_ratio)
    return near[0] if near else None
