"""Which read-ahead suits a model whose experts are read from disk as they are needed: computed from its slices, or from a measured curve.

A fault on a mapping reads a window around it. llama.cpp opens its model with POSIX_FADV_SEQUENTIAL, so the window W is twice the
setting (mm/fadvise.c). An expert's share of one tensor is one contiguous slice S; a window reaches beyond its ends, so about S + W are
read for it, while with a small window it waits for the disk S / W times.

Measured with a real llama-server (b11434, one thread, three models of 1 GB with 0.55 of it in their cgroup, 64 tokens). Bytes read
against those at 16 KiB, which 1 + W / S fits:

    setting KiB       16    32    64   128   256   512  1024
    slice  108 KiB   1.0   1.3   2.1   2.9   3.4   6.8    16
    slice  432 KiB   1.0   1.1   1.3   1.6   2.5   3.3     4
    slice 2304 KiB   1.0   1.0   1.1   1.1   1.3   1.4   1.6

With 432 KiB it was 13 times at 2048 and 197 times at 8192, where what is read in vain pushes out what is needed. Tokens a second, in
percent of the best setting, better of two runs in both orders: on a virtual disk (55 us a request, 1 GB/s), and on a disk held by
blkio.throttle to 250 MB/s and to requests that cost 1 ms each (latency x bandwidth as of an NVMe disk):

    setting KiB              16    32    64   128   256   512
    slice  108 KiB, virtual        85   100    75    65
    slice  432 KiB, virtual        81   100    79    61
    slice 2304 KiB, virtual        57   100    89    98
    slice  108 KiB, 1 ms     51    83    81    78   100    65
    slice  432 KiB, 1 ms     75    78    45   100    89    46
    slice 2304 KiB, 1 ms     32    39    73    85   100    66

Other work ran beside, so single figures are rough (45 surely is). The computed values are 64, 64 and 128 KiB for the first disk, 64, 128
and 256 KiB for the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from moetuned.gguf.experts import ExpertMap
from moetuned.schema.units import format_bytes

LOWEST_KIB = 64
"""Below it a slice of any size is slower to read, and so is every file that is read from end to end, the model when it is loaded too."""
HIGHEST_KIB = 1024
NVME_PAYS_BYTES = 192 << 10
OTHER_PAYS_BYTES = 32 << 10
"""Fitted to the table above; in size about what a disk reads while one request waits for it."""
TIE = 0.10
CLEARLY = 0.20
"""What a value below LOWEST_KIB must be faster by to be chosen, and what noise must be larger than to count."""
_RANGE_OF_SAMPLES = (1.13, 1.69, 2.06, 2.33, 2.53, 2.70, 2.85, 2.97)
"""Expected range of 2, 3, ... samples of a normal distribution in its standard deviations."""
_MEDIAN_BEYOND_MEAN = 1.25
"""A median scatters by so much more than a mean."""


class Choice(msgspec.Struct, frozen=True):
    """A read-ahead in KiB and, in a sentence, why; `kib` None: it is left alone, and `because` says why."""

    kib: int | None
    because: str


class Point(msgspec.Struct, frozen=True):
    """What was measured at one value: bytes of slices a second, and bytes read for each of them (None: not counted).

    `rounds`: bytes of slices a second in each round, of which `useful_bytes_per_second` is the median.
    """

    kib: int
    useful_bytes_per_second: float
    amplification: float | None
    slices: int
    rounds: tuple[float, ...] = ()


class Expected(msgspec.Struct, frozen=True):
    """A point and the speed to expect at it, as a share of the fastest one's."""

    point: Point
    speed_ratio: float


def computed(
    slice_bytes: int | None, rotational: bool | None, unknown: str | None = None, *, nvme: bool = False
) -> Choice:
    """The read-ahead for a model with slices of `slice_bytes` (the smallest of those on one device).

    `unknown` says why the slice is not known. `rotational` None: not known, or a virtual disk, whose word is not believed. `nvme`: the
    disk is known to be one; SATA and virtual disks read less in the time that a request waits, so less in vain pays.
    """
    if slice_bytes is None or slice_bytes <= 0:
        return Choice(None, unknown or "the model has no experts, so it is read from end to end")
    if rotational:
        return Choice(None, "the disk turns, and each seek costs more than what is read in vain")
    # W / bandwidth is read in vain and S / W times latency is waited: least in sum where W^2 = S x latency x bandwidth.
    window = math.sqrt(slice_bytes * (NVME_PAYS_BYTES if nvme else OTHER_PAYS_BYTES))
    power = 1 << round(math.log2(max(1.0, window / 2 / 1024)))
    power = max(LOWEST_KIB, min(HIGHEST_KIB, power))
    return Choice(
        power,
        f"slices of {format_bytes(slice_bytes)} are met all over the file: a fault reads {2 * power} KiB around it, "
        f"about {amplification(slice_bytes, power):.1f} bytes for each that is needed",
    )


def typical_slice_bytes(experts: ExpertMap) -> int | None:
    """The slice size in which half of the experts' bytes lie in that or a smaller one; None without experts.

    Small tensors beside the weights (biases, scales: 11 KiB an expert in gpt-oss) do not count for more than the bytes that they are.
    """
    half = sum(tensor.size_bytes for tensor in experts.tensors) / 2
    seen = 0
    for tensor in sorted(experts.tensors, key=lambda each: each.slice_bytes):
        seen += tensor.size_bytes
        if seen >= half:
            return tensor.slice_bytes
    return None


def window_bytes(kib: int) -> int:
    """The window of one fault on a file that was opened as llama.cpp does it."""
    return 2 * kib << 10


def amplification(slice_bytes: int, kib: int) -> float:
    """Bytes read for each byte needed when a slice is read alone; 1 is the least."""
    return 1.0 + window_bytes(kib) / slice_bytes


def expected(points: Sequence[Point], cached_ratio: float) -> tuple[Expected, ...]:
    """The speed to expect at each point, when so much of the experts (0 to 1) would be in memory with nothing read in vain."""
    speeds = [1.0 / _seconds_per_byte(point, cached_ratio) for point in points]
    fastest = max(speeds, default=1.0)
    return tuple(Expected(point, speed / fastest) for point, speed in zip(points, speeds, strict=True))


def best(curve: Sequence[Expected]) -> Point | None:
    """The fastest; of those within a tenth of it the smallest, which reads least. None without points.

    One below LOWEST_KIB only where it is clearly faster than all from there on: everything else on the disk gets it too.
    """
    usual = max((each.speed_ratio for each in curve if each.point.kib >= LOWEST_KIB), default=0.0)
    if usual >= 1.0 - CLEARLY:
        curve = [each for each in curve if each.point.kib >= LOWEST_KIB]
    fastest = max((each.speed_ratio for each in curve), default=1.0)
    near = [each.point for each in curve if each.speed_ratio >= fastest * (1.0 - TIE)]
    return min(near, key=lambda point: point.kib, default=None)


def noise_ratio(points: Sequence[Point]) -> float:
    """How far two of the speeds may be apart by chance, as a share of the faster: 0 to 1; 0 where nothing is known of it.

    From how the rounds of each value scatter once what slowed a whole round is taken out: twice the standard error of a
    difference of medians. Of the values' scatters the median counts, so one spell of a throttled disk does not.
    """
    from statistics import median  # only who measures needs it; it imports a lot

    count = min((len(point.rounds) for point in points), default=0)
    if count < 2 or len(points) < 2:
        return 0.0
    logs = [_from_median([math.log(max(speed, 1.0)) for speed in point.rounds[:count]]) for point in points]
    whole = [median(row[number] for row in logs) for number in range(count)]
    expected_range = _RANGE_OF_SAMPLES[min(count - 2, len(_RANGE_OF_SAMPLES) - 1)]
    scatters = []
    for row in logs:
        left = [value - of_round for value, of_round in zip(row, whole, strict=True)]
        scatters.append((max(left) - min(left)) / expected_range)
    error = median(scatters) * math.sqrt(2.0 / count) * _MEDIAN_BEYOND_MEAN
    return 1.0 - math.exp(-2.0 * error)


def _from_median(values: Sequence[float]) -> list[float]:
    from statistics import median

    middle = median(values)
    return [value - middle for value in values]


def is_noisy(curve: Sequence[Expected]) -> bool:
    """Whether the rounds differ so much that a value far from the fastest may well be the fastest one.

    That a neighbour may be, half or twice as large, is no matter: it is little faster.
    """
    noise = noise_ratio([each.point for each in curve])
    near = [each.point.kib for each in curve if 1.0 - each.speed_ratio < noise]
    return noise > CLEARLY and max(near) > 2 * min(near)


def _seconds_per_byte(point: Point, cached_ratio: float) -> float:
    """Seconds a byte of expert costs: those of a missing one times the share that is missing.

    Where all experts fit (`cached_ratio` 1) none is missing once each was read: what counts is how fast that is, and nothing is in vain.

    What is read in vain takes the place of experts, but at most half of it: the kernel keeps pages that were used twice on a list of
    their own (active), and gives up what was only read ahead first (mm/vmscan.c, inactive_is_low).
    """
    grown = 1.0 if cached_ratio >= 1.0 else point.amplification or 1.0
    kept = cached_ratio * (0.5 + 0.5 / max(1.0, grown))
    return (1.0 - min(kept, 0.99)) / max(point.useful_bytes_per_second, 1.0)
