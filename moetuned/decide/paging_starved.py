"""Slow for want of the processor: it generates far below its own best, hardly reads, and computes far less than it did then.

Measured: nine busy processes on two cores made 27 tokens/s 0.3 to 3, at 0.3 cores where 1.4 had been used, and disks busy for 1 % of the time;
a thrash as slow makes something wait for a disk for a quarter of the time. While it lasts no cost of reads counts: what is
read is not what it waits for. Its own memory that is swapped counts all the same.
"""

from __future__ import annotations

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.paging_evidence import Best
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Phase, Reason

SIGNAL = "cpu_ratio"
"""Of the reason; who looks for it finds no other reason with this signal."""
MAX_SECONDS = 10.0
"""More than this is not remembered, so that a thrash which follows is seen soon."""


def starves(signals: Signals, phase: Phase, settings: DetectorSettings, best: Best | None) -> bool | None:
    """Whether this tick shows it; None where it cannot tell: it does not generate, or its best or a figure is unknown."""
    speed, cpu, read = (signals.get(name) for name in ("tokens_per_second", SIGNAL, "process_read_bytes_per_second"))
    if phase is not Phase.DECODE or best is None or best.cpu_ratio is None or None in (speed, cpu, read):
        return None
    assert speed is not None and cpu is not None and read is not None
    if speed >= settings.slow_ratio * best.tokens_per_second or cpu >= settings.starved_cpu_ratio * best.cpu_ratio:
        return False
    return read < settings.quiet_read_bytes_per_second or _no_disk_wait(signals, settings)


def _no_disk_wait(signals: Signals, settings: DetectorSettings) -> bool:
    """Whether hardly anything waits for a disk or for memory; False where nothing tells."""
    names = ("machine_stall_io_some_ratio", "device_busy_ratio", "stall_memory_some_ratio")
    known = [value for name in names if (value := signals.get(name)) is not None]
    return bool(known) and max(known) < settings.starved_disk_wait_ratio


def starved_seconds(before: float, shows: bool | None, dt: float) -> float:
    """How long it has starved, less where ticks spoke against it (twice) or told nothing."""
    if shows:
        return min(MAX_SECONDS, before + dt)
    return max(0.0, before - (dt if shows is None else 2 * dt))


def starved_reason(signals: Signals, best: Best | None, held: float) -> Reason:
    """For people."""
    cpu, most = signals.get(SIGNAL), None if best is None else best.cpu_ratio
    text = "slower than its own best"
    text += "" if best is None else f" {best.tokens_per_second:.1f} tokens/s"
    text += "; it waits for the processor, not for memory"
    if cpu is not None and most is not None:
        text += f": it gets {cpu:.1f} cores, {most:.1f} when it was fastest"
    return Reason(axis="paging", signal=SIGNAL, value=cpu, limit=most, held_seconds=held, text=text)
