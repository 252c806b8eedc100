"""How far a prompt is, as people say it. Apart from what works it out, so that who only shows it need not import that."""

from __future__ import annotations

from moetuned.schema.snapshot import PrefillView
from moetuned.schema.units import format_bytes, format_duration

SMALL_BYTES_PER_SECOND = 1e6
"""Who reads less does not read from disk to speak of."""
_NARROW = 1.3
"""Two ends of a range that are closer than this are one figure."""
_LEAST_READ_BYTES = 16 << 20
"""A prompt that reads less in all is not one that is read from disk."""


def prefill_progress(view: PrefillView) -> str:
    """How far a prompt is read, e.g. "34 GiB of about 50 GiB read, 40 s left; not hung"; "" when there is nothing to say yet."""
    parts = []
    if view.tokens_done is not None and view.tokens_total:
        parts.append(f"{view.tokens_done} of {view.tokens_total} tokens")
    elif view.tokens_done:
        parts.append(f"{view.tokens_done} tokens so far")
    done, total = view.read_bytes or 0, view.total_bytes
    if max(done, total or 0) < _LEAST_READ_BYTES or done < SMALL_BYTES_PER_SECOND * (view.seconds or 0.0):
        pass  # it computes: how little it reads says nothing of how far it is
    elif total is not None and view.tokens_total is not None:
        parts.append(f"{format_bytes(done)} of about {format_bytes(total)} read")
    else:
        parts.append(f"{format_bytes(done)} read")
    if left := eta_text(view):
        parts.append(left)
    return f"{', '.join(parts)}; not hung" if parts else ""


def eta_text(view: PrefillView) -> str:
    """How long it goes on, as people say it; "" when nothing is known."""
    least, most, likely = view.eta_least_seconds, view.eta_most_seconds, view.eta_seconds
    if least is None:
        return ""
    if most is None or (likely is None and most > 4 * max(least, 1.0)):
        return f"at least {format_duration(round(least))} left" if round(least) else ""
    if most <= _NARROW * max(least, 1.0):
        left = round(most if likely is None else likely)
        return f"{format_duration(left)} left" if left else "nearly done"
    if not round(least):
        return f"at most {format_duration(round(most))} left"
    return f"{format_duration(round(least))} to {format_duration(round(most))} left"
