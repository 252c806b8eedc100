"""Slow for want of the processor: it generates far below its own best and hardly reads; it could run, and does not get one core.

A main thread that can run (state R) has one core to itself unless others take it; one that waits for a disk is in state D, one that
waits for another machine or a GPU sleeps or spins. Measured: nine busy processes on two cores made 27 tokens/s 0.3 to 3 at 0.3 cores, in state R in 97 looks of
100, disks busy for 1 % of the time; in thrashes as slow it was in state D in 43 of 100. While it lasts no cost of reads counts:
what is read is not what it waits for. Its own memory that is swapped counts all the same.
"""

from __future__ import annotations

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.paging_evidence import Best
from moetuned.schema.sample import BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Phase, Reason

SIGNAL = "cpu_ratio"
"""Of the reason; no other reason has this signal."""
MAX_SECONDS = 10.0
"""More than this is not remembered, so that a thrash which follows is seen soon."""


def starves(
    signals: Signals, sample: BackendSample, phase: Phase, settings: DetectorSettings, best: Best | None
) -> bool | None:
    """Whether this tick shows it; None where it cannot tell: it does not generate, its main thread sleeps, or a figure is unknown."""
    speed, cpu, read = (signals.get(name) for name in ("tokens_per_second", SIGNAL, "process_read_bytes_per_second"))
    state = None if sample.process is None else sample.process.state
    if phase is not Phase.DECODE or best is None or speed is None or cpu is None or read is None:
        return None
    if speed >= settings.slow_ratio * best.tokens_per_second or cpu >= settings.starved_cores:
        return False
    if state != "R":
        return False if state == "D" else None
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


def starved_reason(signals: Signals, best: Best | None, settings: DetectorSettings, held: float) -> Reason:
    """For people."""
    cpu = signals.get(SIGNAL)
    text = "slower than its own best"
    text += "" if best is None else f" {best.tokens_per_second:.1f} tokens/s"
    text += "; it waits for the processor, not for memory"
    text += "" if cpu is None else f": it could run and gets {cpu:.1f} cores"
    return Reason(axis="paging", signal=SIGNAL, value=cpu, limit=settings.starved_cores, held_seconds=held, text=text)
