"""Curves of memory that grows until the kernel's OOM killer comes, as the texts of a v1 or v2 cgroup each second.

The kernel here gives page cache back as anonymous memory grows, then swaps while there is swap, and kills when nothing is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec

from moetuned.decide.detector import Begun, DetectorSettings, initial, step
from moetuned.decide.facts import BackendFacts
from moetuned.decide.signals import derive
from moetuned.parse.assemble import assemble
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendIdentity, RawBackend, RawSample, Sample

MB, GIB = 1_000_000, 1 << 30
BEFORE_SECONDS = 20
"""How long nothing grows first."""
Shape = Callable[[float], float]
"""Bytes that were allocated after so many seconds."""
_SLOTS = '[{"id": 0, "is_processing": true, "id_task": 1, "next_token": [{"n_decoded": 5}]}]'


class Machine(msgspec.Struct, frozen=True):
    """`where`: what grows is the backend's own ("own"), another process's in its cgroup ("sibling"), or another one's in a cgroup
    beside it below a limit that both share ("above"), or anywhere on the machine without any cgroup ("machine").
    """

    limit_bytes: int
    base_bytes: int
    version: int = 2
    swap_bytes: int = 0
    where: str = "own"
    high: bool = False
    interval_seconds: float = 1.0


def linear(rate: float) -> Shape:
    return lambda seconds: rate * seconds


def accelerating(rate: float) -> Shape:
    """From nothing to `rate` in twenty seconds."""
    return lambda seconds: rate * (seconds - 10) if seconds > 20 else rate * seconds * seconds / 40


def steps(rate: float, period: float) -> Shape:
    """At once, every `period` seconds."""
    return lambda seconds: math.floor(seconds / period + 0.37) * rate * period


def bursts(rate: float, busy: float, pause: float) -> Shape:
    """`rate` on average: fast for `busy` seconds, nothing for `pause`."""
    period = busy + pause
    whole = rate * period
    return lambda seconds: math.floor(seconds / period) * whole + min(1.0, seconds % period / busy) * whole


def noisy(rate: float) -> Shape:
    """Never smaller, but by turns slower and faster."""
    return lambda seconds: rate * (seconds + 0.9 * math.sin(seconds * 2.1) / 2.1)


def kill_seconds(machine: Machine, shape: Shape) -> float:
    """When the OOM killer comes after the growth began."""
    room = machine.limit_bytes + machine.swap_bytes - machine.base_bytes
    at = 0.0
    while shape(at) <= room:
        at += 0.05
    return at


def events(machine: Machine, shape: Shape, seconds: float, health: str = "ok") -> Iterator[tuple[float, Begun]]:
    """What the detector says, at seconds since the growth began; `seconds`: how long it is watched after that."""
    identity = _identity(machine)
    facts, settings, state = BackendFacts(model_bytes=2 * GIB), DetectorSettings(), initial("one")
    window: list[Sample] = []
    count = round((BEFORE_SECONDS + seconds) / machine.interval_seconds)
    for number in range(count):
        at = number * machine.interval_seconds - BEFORE_SECONDS
        raw = raw_sample(machine, shape(at) if at > 0 else 0.0, 1000.0 + at, at, health)
        sample = assemble(raw, [identity])
        window = [*(one for one in window if sample.at_seconds - one.at_seconds <= 60), sample]
        signals = derive(window, "one", facts)
        stepped = step(state, signals, sample.backends[0], facts, settings)
        state = stepped.state
        for begun in stepped.begun:
            yield at, begun


def first_near(machine: Machine, shape: Shape, seconds: float) -> float | None:
    """When memory_near_limit begins, seconds since the growth began."""
    found = (at for at, begun in events(machine, shape, seconds) if begun.name is EventName.MEMORY_NEAR_LIMIT)
    return next(found, None)


def _identity(machine: Machine) -> BackendIdentity:
    in_cgroup = machine.where != "machine"
    return BackendIdentity(
        "one",
        pid=7,
        cgroup_directory="/cg/slice/llm" if in_cgroup else None,
        cgroup_version=machine.version if in_cgroup else None,
        limited_above=("/cg/slice",) if machine.where == "above" else (),
    )


def raw_sample(machine: Machine, grown: float, t: float, at: float, health: str) -> RawSample:
    """The texts when `grown` bytes were allocated on top of what there was."""
    total = machine.base_bytes + int(grown)
    anonymous = min(total, machine.limit_bytes)
    swapped = min(max(0, total - machine.limit_bytes), machine.swap_bytes)
    own = total if machine.where == "own" else machine.base_bytes
    files: dict[str, str | None] = _process(own - (swapped if machine.where == "own" else 0), swapped, machine, at)
    swap_free = machine.swap_bytes - swapped
    if machine.where == "machine":
        files["/proc/meminfo"] = _meminfo(machine.limit_bytes, anonymous, machine.swap_bytes, swap_free)
        return RawSample(t, t, files, {"one": _backend(health)})
    files["/proc/meminfo"] = _meminfo(256 * GIB, anonymous, machine.swap_bytes, swap_free)
    if machine.where == "above":
        files |= _cgroup("/cg/slice", machine, machine.limit_bytes, anonymous, swapped)
        files |= _cgroup("/cg/slice/llm", machine, None, machine.base_bytes, 0)
    else:
        files |= _cgroup("/cg/slice/llm", machine, machine.limit_bytes, anonymous, swapped)
    return RawSample(t, t, files, {"one": _backend(health)})


def _backend(health: str) -> RawBackend:
    if health == "loading":
        return RawBackend({"/health": "!503"})
    return RawBackend({"/health": '{"status": "ok"}', "/slots": _SLOTS})


def _process(anonymous: int, swapped: int, machine: Machine, at: float) -> dict[str, str | None]:
    swap = swapped if machine.where == "own" else 0
    return {
        "/proc/7/stat": f"7 (llama) S {' '.join('1' * 18)} 100 0 0 0 0\n",
        "/proc/7/status": f"RssAnon:\t{anonymous // 1024} kB\nRssFile:\t1 kB\nVmSwap:\t{swap // 1024} kB\n",
        "/proc/7/io": f"read_bytes: {int(1000 * (at + 100))}\n",
    }


def _meminfo(total: int, anonymous: int, swap: int, swap_free: int) -> str:
    cached = total - anonymous
    lines = {
        "MemTotal": total, "MemFree": 0, "MemAvailable": cached, "Buffers": 0, "Cached": cached, "AnonPages": anonymous,
        "Shmem": 0, "Active(file)": cached // 2, "Inactive(file)": cached - cached // 2, "Unevictable": 0, "SUnreclaim": 0,
        "SwapTotal": swap, "SwapFree": swap_free,
    }  # fmt: skip
    return "".join(f"{name}: {value // 1024} kB\n" for name, value in lines.items())


def _cgroup(directory: str, machine: Machine, limit: int | None, anonymous: int, swapped: int) -> dict[str, str | None]:
    cache = (machine.limit_bytes if limit is None else limit) - anonymous
    current = anonymous + cache
    if machine.version == 1:
        whole = "9223372036854771712" if limit is None else str(limit)
        return {
            f"{directory}/memory.usage_in_bytes": f"{current}\n",
            f"{directory}/memory.limit_in_bytes": f"{whole}\n",
            f"{directory}/memory.stat": f"hierarchical_memory_limit {machine.limit_bytes}\n"
            f"hierarchical_memsw_limit {machine.limit_bytes + machine.swap_bytes}\n"
            f"total_cache {cache}\ntotal_rss {anonymous}\ntotal_shmem 0\ntotal_swap {swapped}\ntotal_inactive_file {cache}\n"
            "total_active_file 0\ntotal_unevictable 0\n",
        }
    text = "max" if limit is None else str(limit)
    return {
        f"{directory}/memory.current": f"{current}\n",
        f"{directory}/memory.max": "max\n" if machine.high else f"{text}\n",
        f"{directory}/memory.high": f"{text}\n" if machine.high else "max\n",
        f"{directory}/memory.stat": f"anon {anonymous}\nfile {cache}\nkernel 0\nshmem 0\ninactive_file {cache}\nactive_file 0\n"
        "unevictable 0\nslab_reclaimable 0\n",
        f"{directory}/memory.swap.current": f"{swapped}\n",
        f"{directory}/memory.swap.max": "max\n",
    }
