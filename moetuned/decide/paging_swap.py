"""Swap thrash: the backend's own memory goes out to swap and comes back again, for as long as it works.

Swap-in alone is none: what was pushed out while it was idle comes back with the next request, and then less is in swap. Measured:
repacked weights of 0.45 GB in a cgroup of 0.28 GB made a prompt of 60 tokens read at 4 tokens/s instead of 90, at 20 to 30 MB/s in
and as much out; the OOM killer came 18 s later. Where the kernel tells how long its
cgroup stalled for memory (PSI), hardly any stall means that swap is fast enough (zram) and costs nothing to speak of.
"""

from __future__ import annotations

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_rate, format_ratio
from moetuned.schema.verdict import Check, Phase

_SIGNAL = "own_swap_in_bytes_per_second"


def swap_check(signals: Signals, phase: Phase, settings: DetectorSettings, ease: float) -> Check:
    """The sign as it stands. `ease`: below 1 while it thrashes, so that the limit is lower then."""
    back, out = signals.get(_SIGNAL), signals.get("own_swap_out_bytes_per_second")
    weak = phase is Phase.UNKNOWN  # it must do something, since nothing is swapped in for one that is idle
    limit = settings.swap_in_bytes_per_second * ease
    check = Check(_SIGNAL, back, limit, weak=weak)
    if back is None:
        return check
    if back < limit:
        return Check(_SIGNAL, back, limit, weak=weak, beyond=False)
    aside = _aside(signals, phase, settings, back, ease)
    if aside is not None:
        return Check(_SIGNAL, back, limit, weak=weak, beyond=False, aside=aside)
    text = f"its own memory is swapped in at {format_rate(back)}"
    text += "" if out is None else f" and out again at {format_rate(out)}"
    swapped = signals.get("anonymous_bytes")
    text += "" if swapped is None else f", of {format_bytes(swapped)} it has"
    return Check(_SIGNAL, back, limit, f"{text} (limit {format_rate(limit)})", weak=weak, beyond=True)


def _aside(signals: Signals, phase: Phase, settings: DetectorSettings, back: float, ease: float) -> str | None:
    """Why swap-in is no thrash; None when it is one."""
    if phase in (Phase.IDLE, Phase.LOADING, Phase.ABSENT):
        return "it does not work on a request"
    out, growth = signals.get("own_swap_out_bytes_per_second"), signals.get("swapped_growth_bytes_per_second")
    least = settings.swap_out_ratio * ease * back
    if out is not None and out < least:
        return "little goes out to swap meanwhile: it comes back and stays"
    if out is None and (growth is None or growth < -settings.swap_returns_ratio * back):
        return (
            "what is in swap becomes less: it comes back and stays"
            if growth is not None
            else "whether it stays is unknown"
        )
    stall = signals.get("stall_memory_some_ratio")
    if stall is not None and stall < settings.swap_stall_ratio * ease:
        return f"it stalls for memory only {format_ratio(stall)} of the time: swap is fast enough"
    return None
