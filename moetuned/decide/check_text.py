"""A rule's check as people read it: "bytes per token 1.9 GiB, limit 620 MiB, held 5 of 8 s"."""

from __future__ import annotations

from moetuned.decide.signals import signal_units
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import Check

_LABELS = {
    "hung": "nothing moves",
    "left_memory_ratio": "left memory while idle",
    "tokens_per_second": "speed",
    "prompt_tokens_per_second": "prompt speed",
    "seconds_to_limit": "time to its limit",
}
_RULES = {
    ("hung", "hung"): "it hangs",
    ("process_read_bytes_per_second", "steady"): "hardly anything is read",
    ("bytes_per_token", "steady"): "a token costs next to nothing",
    ("cache_fill_ratio", "warming"): "reads fill the page cache",
    ("refault_ratio", "streaming"): "what was in memory is read again",
    ("bytes_per_token", "no thrash, whatever else is beyond"): "a token costs little",
    ("cache_lost_ratio", "thrashing"): "its page cache shrank",
    ("bytes_per_token", "thrashing"): "a token costs too much",
    ("read_amplification", "thrashing"): "more is read than is missing",
    ("other_resident_ratio", "thrashing"): "what every token needs is missing",
    ("tokens_per_second", "thrashing"): "slower than its own warm best",
    ("bytes_per_major_fault", "thrashing"): "a fault reads too much",
    ("own_swap_in_bytes_per_second", "thrashing"): "its own memory is swapped",
    ("left_memory_ratio", "cold"): "pushed out while idle",
    ("resident_ratio", "steady"): "all of it is in memory",
    ("headroom_bytes", "near_limit"): "little memory is left",
    ("headroom_bytes", "critical"): "hardly any memory is left",
    ("headroom_bytes", "ok"): "enough memory is left again",
    ("seconds_to_limit", "near_limit"): "memory is soon full",
}
"""What each rule is about, by its signal and what it leads to: several look at the same signal."""
_FIGURES = {"hung": "seconds", "left_memory_ratio": "ratio"}
"""Units of what only a rule works out and no signal is."""
_ENDINGS = ("_bytes_per_second", "_per_second", "_bytes", "_ratio", "_seconds")


def label(signal: str) -> str:
    """Words of a signal; its unit is said by the value."""
    if signal in _LABELS:
        return _LABELS[signal]
    for ending in _ENDINGS:
        if signal.endswith(ending) and signal != ending:
            return signal.removesuffix(ending).replace("_", " ")
    return signal.replace("_", " ")


def amount(signal: str, value: float | None) -> str:
    """A value in the signal's unit; "unknown" for None."""
    if value is None:
        return "unknown"
    match signal_units().get(signal) or _FIGURES.get(signal, ""):
        case "bytes":
            return format_bytes(value)
        case "bytes/s":
            return format_rate(value)
        case "ratio" if signal == "read_amplification":
            return f"{value:.1f} times"
        case "ratio":
            return format_ratio(value)
        case "seconds" | "s":
            return format_duration(value)
        case "":
            return f"{value:.4g}"
        case unit:
            return f"{value:.1f} {unit}"


def rule_text(check: Check) -> str:
    """What the rule is about, in words; "" for a check of no rule."""
    return _RULES.get((check.signal, check.would), "")


def check_text(check: Check) -> str:
    """One line: the value, its limit, whether it is beyond it and for how long, or why it is unknown or does not count."""
    if check.unknown is not None and check.value is None:
        return f"{label(check.signal)} unknown: {check.unknown}"
    text = f"{label(check.signal)} {amount(check.signal, check.value)}"
    if check.limit is not None:
        text += f", {limit_text(check)}"
    if check.aside is not None:
        return f"{text}; does not count: {check.aside}"
    if check.unknown is not None:
        return f"{text}; unknown: {check.unknown}"
    if check.needed_seconds is not None and (check.beyond or check.held_seconds):
        text += f", {held_text(check)}"
    return text


def limit_text(check: Check) -> str:
    """The limit and its side."""
    return f"limit {'' if check.above else 'below '}{amount(check.signal, check.limit)}"


def held_text(check: Check) -> str:
    """How long of how long."""
    held, needed = check.held_seconds or 0.0, check.needed_seconds or 0.0
    if held >= needed:
        return f"held {format_duration(held)} (needs {format_duration(needed)})"
    if held < 60 and needed < 60:
        return f"held {held:.0f} of {needed:.0f} s"
    return f"held {format_duration(held)} of {format_duration(needed)}"
