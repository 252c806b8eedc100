"""How fast a model would be: tokens a second as a range, and never more than a forecast.

A token reads its experts' bytes; those that are not in memory come from the disk in read-ahead windows, one fault after
the other. How many are missing depends on the model and the topic: `miss = 1 - ratio ** a` with a between 0.08 and 0.7 (0.05 for qwen3moe),
fitted to published hit rates (table in docs/estimate.md): the same ratio was measured ten times apart in speed.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.ledger import Split
from moetuned.decide.weights import Weights
from moetuned.schema.estimate import Amount, DiskFacts, Forecast, Ledger, MachineFacts, Measured, Miss, Rate

CLOSE_RATIO = 0.7
USABLE_RATIO = 0.4
ENOUGH_TOKENS = 200
"""From so many tokens on a measured miss rate replaces the curve."""

_EXPONENTS: dict[str, tuple[float, float, str]] = {
    "qwen3moe": (0.05, 0.7, "Qwen3-30B, one report; others"),
    "glm-dsa": (0.3, 0.7, "GLM-5.2, five reports"),
    "qwen3next": (0.08, 0.7, "512-expert Qwen, five reports"),
    "qwen35moe": (0.08, 0.7, "Qwen3.5-397B, two reports"),
}
_ANY_EXPONENT = (0.08, 0.7, "reports of other models")
_MEASURED_SPREAD = 0.25

_SLOW_BYTES_PER_CORE_SECOND = 1.5e9
_FAST_BYTES_PER_CORE_SECOND = 12e9
_FASTEST_MEMORY_BYTES_PER_SECOND = 400e9
_UNKNOWN_CORES = (2, 16)
_SMALLEST_LOAD = 0.5
_GPU_BYTES_PER_SECOND = (150e9, 2000e9)
_TOKEN_SECONDS = (0.0002, 0.002)  # what a token costs beside its bytes: graph, sampling, HTTP


class _Disk(msgspec.Struct, frozen=True):
    """An assumed disk: sequential bytes a second and seconds of waiting a request, each from slow to fast."""

    slow: float
    fast: float
    long_wait: float
    short_wait: float


_DISKS = {
    "nvme": _Disk(1e9, 7e9, 250e-6, 60e-6),
    "ssd": _Disk(0.3e9, 0.55e9, 300e-6, 80e-6),
    "hard disk": _Disk(0.08e9, 0.25e9, 15e-3, 4e-3),
    "unknown": _Disk(0.1e9, 7e9, 2e-3, 60e-6),
}


def fault_rate(disk: DiskFacts, threads: int) -> Rate:
    """Bytes a second that faults get: windows one after the other at worst, one for each thread and one ahead at best."""
    if disk.rate is not None:
        return disk.rate
    assumed = _DISKS[disk.kind]
    slow, fast, source = assumed.slow, assumed.fast, f"assumed for {disk.kind}; --measure or --disk-read know better"
    if disk.sequential_bytes_per_second is not None:
        given = disk.sequential_bytes_per_second
        slow, fast, source = given * 0.8, given, f"--disk-read, in windows of {disk.window_bytes >> 10} KiB"
    window = disk.window_bytes
    return Rate(
        window / (assumed.long_wait + window / slow),
        min(fast, 2 * threads * window / (assumed.short_wait + window / fast)),
        source,
    )


def compute_rate(cores: int | None, load: float | None) -> Rate:
    """Bytes of weights that the CPU works through a second; at worst it shares its cores with what runs now."""
    slow_cores, fast_cores = (cores, cores) if cores else _UNKNOWN_CORES
    busy = max(0.0, load or 0.0)
    now = f", load {busy:.1f} now" if busy >= _SMALLEST_LOAD else ""
    return Rate(
        slow_cores * _SLOW_BYTES_PER_CORE_SECOND / (1.0 + busy / slow_cores),
        min(fast_cores * _FAST_BYTES_PER_CORE_SECOND, _FASTEST_MEMORY_BYTES_PER_SECOND),
        f"assumed for {cores or 'an unknown number of'} cores{now}",
    )


def miss_share(architecture: str | None, ratio_low: float, ratio_high: float) -> Miss:
    """Share of a token's expert bytes that is missing, when between these shares of all experts are in memory."""
    if ratio_low >= 1.0:
        return Miss(0.0, 0.0, "all experts fit")
    small, large, evidence = _EXPONENTS.get(architecture or "", _ANY_EXPONENT)
    return Miss(1.0 - ratio_high**small, 1.0 - ratio_low**large, f"1 - ratio^a, a {small:g} to {large:g}: {evidence}")


def amplification(slice_bytes: int, window_bytes: int) -> float:
    """Most bytes read for each byte needed: a window too many for each slice (measured: 20 times at 8 MiB, 1.2 at 128 KiB)."""
    return 1.0 + window_bytes / slice_bytes if slice_bytes else 1.0


def word(ratio: float) -> tuple[str, str]:
    """The familiar words for the share of the experts that fits, and what to do about it."""
    if ratio >= CLOSE_RATIO:
        return "close to in-memory", ""
    if ratio >= USABLE_RATIO:
        return "usable, depends on the topic", "a smaller quantisation or more RAM makes it steadier"
    return "slow", "a smaller quantisation or a smaller model is much faster"


def forecast(
    architecture: str | None,
    sizes: Weights,
    ledger: Ledger,
    machine: MachineFacts,
    disk: DiskFacts,
    on_gpu: Split,
    measured: Measured | None = None,
) -> Forecast:
    """The forecast for a ledger. `measured` replaces the curve when it saw enough tokens."""
    here = 1.0 - on_gpu.expert_bytes / sizes.expert_bytes if sizes.expert_bytes else 1.0
    active = int(sizes.active_expert_bytes * here)
    miss = miss_share(architecture, ledger.ratio_low, ledger.ratio_high)
    worst = amplification(sizes.slice_bytes, disk.window_bytes)
    read = Amount(int(active * miss.low), int(active * miss.high * worst), "active experts, missing share, read-ahead")
    if disk.rate is not None:  # measured for the useful bytes of whole slices: what is read around them is in it
        read = Amount(int(active * miss.low), int(active * miss.high), "active experts, missing share")
    if measured is not None and measured.tokens >= ENOUGH_TOKENS:
        miss, read = _as_measured(measured, active)
    again = _dense_shortage(ledger)
    if again.high_bytes:
        source = f"{read.source}; and weights of every token that do not stay"
        read = Amount(read.low_bytes + again.low_bytes, read.high_bytes + again.high_bytes, source)
    threads = machine.physical_cores or _UNKNOWN_CORES[0]
    rate, compute = fault_rate(disk, threads), compute_rate(machine.physical_cores, machine.load)
    in_ram = active + sizes.every_token_bytes - on_gpu.dense_bytes
    in_vram = on_gpu.dense_bytes + sizes.active_expert_bytes - active
    slow_cpu = in_ram / compute.low_bytes_per_second + _TOKEN_SECONDS[1]
    slow_gpu = in_vram / _GPU_BYTES_PER_SECOND[0]
    fast_compute = in_ram / compute.high_bytes_per_second + in_vram / _GPU_BYTES_PER_SECOND[1] + _TOKEN_SECONDS[0]
    slow_disk = read.high_bytes / rate.low_bytes_per_second
    fast_disk = read.low_bytes / rate.high_bytes_per_second
    label, advice = word(ledger.ratio_low) if sizes.expert_bytes else _dense_word(again)
    return Forecast(
        word=label,
        advice=advice,
        tokens_per_second_low=1.0 / (slow_cpu + slow_gpu + slow_disk),
        tokens_per_second_high=1.0 / max(fast_compute, fast_disk),
        active_expert_bytes=active,
        every_token_bytes=sizes.every_token_bytes,
        miss=miss,
        disk_bytes_per_token=read,
        disk=rate,
        compute=compute,
        limited_by=max((slow_cpu, "the CPU"), (slow_gpu, "the GPU"), (slow_disk, "the disk"))[1],
        gpu=Rate(*_GPU_BYTES_PER_SECOND, "assumed for any GPU") if in_vram else None,
    )


def _dense_word(shortage: Amount) -> tuple[str, str]:
    """The words for a model without experts, all of which every token reads."""
    if not shortage.high_bytes:
        return "in memory", ""
    return (
        "may not stay in memory",
        "weights are read again for every token if all else takes its most; take a shorter context",
    )


def _as_measured(measured: Measured, active_bytes: int) -> tuple[Miss, Amount]:
    source = f"measured by the daemon over {measured.tokens} tokens"
    low, high = (measured.bytes_per_token * (1 + side * _MEASURED_SPREAD) for side in (-1, 1))
    shares = [min(1.0, each / active_bytes) if active_bytes else 0.0 for each in (low, high)]
    return Miss(shares[0], shares[1], source), Amount(int(low), int(high), source)


def _dense_shortage(ledger: Ledger) -> Amount:
    """Weights of every token that have no room. Read in order again and again, all of them come from the disk then."""
    wanted = [line.amount for line in ledger.lines if line.group == "weights" and line.place == "ram"]
    other = [line.amount for line in ledger.lines if line.group != "weights" and line.place == "ram"]
    weights = sum(amount.low_bytes for amount in wanted)
    least = ledger.limit.high_bytes - sum(amount.low_bytes for amount in other)
    most = ledger.limit.low_bytes - sum(amount.high_bytes for amount in other)
    low = min(weights, max(0, weights - max(0, least)))
    return Amount(low, weights if weights > most else 0, "header")
