"""A machine of numbers on which memory grows in some way while relief acts: restarts, OOM kills, and what context is left.

`python tests/decide/foresight_simulation.py` prints the table for several ways to foresee.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from random import Random
from unittest import mock

import msgspec

from moetuned.decide import foresight, relief
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.verdict import MemoryState, Verdict

MIB = 1 << 20
GIB = 1 << 30
LIMIT, BASE, PER_TOKEN = 16 * GIB, GIB, 128 << 10
PREFERRED, MINIMUM = 65536, 2048
NEAR, CRITICAL = int(0.08 * LIMIT), int(0.03 * LIMIT)
TARGET = int(1.5 * NEAR)
SETTINGS = relief.ReliefSettings(
    act=True, at_most=3, at_most_seconds=3600.0, cool_down_seconds=120.0, target_headroom_bytes=TARGET, near_headroom_bytes=NEAR,
    settle_seconds=5.0, looks=2,
)  # fmt: skip

Curve = Callable[[int], float]
"""Bytes that are taken in this second."""


def lasting(rate: float, seconds: int | None, begins: int = 30) -> Curve:
    """`rate` from the second `begins` on, for `seconds`; None: for ever."""
    return lambda at: rate if at >= begins and (seconds is None or at < begins + seconds) else 0.0


def step_of(size: float, at_second: int = 30) -> Curve:
    """All at once."""
    return lambda at: size if at == at_second else 0.0


class Outcome(msgspec.Struct):
    """What became of it. `kills`: by the OOM killer while it served; `failed_loads`: while it loaded, so that it loads again. `context`:
    tokens in the end; `least`: the shortest there was; `most_cut_bytes`: of one restart.
    """

    restarts: int = 0
    kills: int = 0
    failed_loads: int = 0
    context: int = PREFERRED
    least: int = PREFERRED
    most_cut_bytes: int = 0


class _Machine:
    def __init__(self, start_headroom: int, load_seconds: int, cache_mib: int) -> None:
        self.context, self.cache_mib, self.load_seconds = PREFERRED, cache_mib, load_seconds
        self.others = LIMIT - BASE - PREFERRED * PER_TOKEN - start_headroom
        self.grown = 0.0
        self.loads_until: int | None = None
        self.used: list[tuple[float, float]] = []

    def own(self, at: int) -> float:
        loads = self.loads_until is not None and at < self.loads_until
        return BASE if loads else BASE + self.context * PER_TOKEN + self.grown

    def begin(self, at: int) -> None:
        self.loads_until, self.grown, self.used = at + self.load_seconds, 0.0, []


def simulate(
    others: Curve = lambda _at: 0.0,
    own: Curve = lambda _at: 0.0,
    *,
    bounded: bool = False,
    leaks: bool = False,
    start_headroom: int = int(1.3 * NEAR),
    load_seconds: int = 20,
    cache_mib: int = 0,
    seconds: int = 900,
) -> Outcome:
    """Second by second. `own` is what the backend itself grows by while it runs, up to its prompt cache where `bounded`."""
    machine, state, found = _Machine(start_headroom, load_seconds, cache_mib), relief.ReliefState(), Outcome()
    for at in range(seconds):
        machine.others += others(at)
        ready = machine.loads_until is None or at > machine.loads_until
        if machine.loads_until == at:
            state = relief.restarted(state)
        if ready:
            machine.grown += own(at)
            if bounded:
                machine.grown = min(machine.grown, machine.cache_mib * MIB)
        used = machine.own(at) + machine.others
        if used > LIMIT:
            if machine.loads_until is not None and at <= machine.loads_until + 1:
                found.failed_loads += 1
            else:
                found.kills += 1
            if machine.others > machine.own(at):
                machine.others = LIMIT / 4  # the kernel takes the largest
                machine.used = []
            else:
                machine.begin(at)
            continue
        if not ready:
            continue
        machine.used.append((machine.own(at), machine.others))
        memory, verdict, own_rate = _look(machine.used)
        if leaks:
            memory = msgspec.structs.replace(memory, growth_kind="leak")
        facts = relief.ReliefFacts(
            supervised=True, context_changeable=True, prompt_cache_changeable=cache_mib > 0, context_length=machine.context,
            minimum_context=MINIMUM, prompt_cache_mib=machine.cache_mib, kv_bytes_per_token=PER_TOKEN, ready=True,
            grown_bytes=int(machine.grown), own_bytes=int(machine.own(at)), own_growth_bytes_per_second=own_rate,
            restart_seconds=float(load_seconds),
        )  # fmt: skip
        decided = relief.step(state, verdict, memory, facts, SETTINGS, float(at))
        state = decided.state
        if decided.restart is not None:
            found.restarts += 1
            cut = (machine.context - decided.restart.context_length) * PER_TOKEN
            found.most_cut_bytes = max(found.most_cut_bytes, cut)
            machine.context = decided.restart.context_length
            if decided.restart.prompt_cache_mib is not None:
                machine.cache_mib = decided.restart.prompt_cache_mib
            found.least = min(found.least, machine.context)
            machine.begin(at)
    found.context = machine.context
    return found


def _look(used: list[tuple[float, float]]) -> tuple[MemoryView, Verdict, float]:
    """Memory as the detector sees it, roughly: a trend of five seconds, of three looks where it is fast."""
    headroom = LIMIT - sum(used[-1])
    recent = used[-6:]
    rates = [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in itertools.pairwise(recent)]
    growth, own = 0.0, 0.0
    if len(rates) >= 3 and all(sum(rate) > MIB for rate in rates[-3:]):
        growth, own = (sum(rate[0] + rate[1] for rate in rates[-3:]) / 3, sum(rate[0] for rate in rates[-3:]) / 3)
    seconds = headroom / growth if growth > 0 else None
    trend = seconds is not None and (seconds <= 14 or (seconds <= 25 and headroom < LIMIT / 2))
    state = (
        MemoryState.CRITICAL
        if headroom < CRITICAL
        else MemoryState.NEAR_LIMIT
        if headroom < NEAR or trend
        else MemoryState.OK
    )
    view = MemoryView("cgroup", LIMIT, int(LIMIT - headroom), headroom_bytes=int(headroom), seconds_to_limit=seconds)
    return view, Verdict("glm", 0.0, memory=state), own


CURVES: dict[str, Callable[[], Outcome]] = {
    "hog 20 MB/s for 10 s": lambda: simulate(lasting(20e6, 10)),
    "hog 20 MB/s for 60 s": lambda: simulate(lasting(20e6, 60)),
    "hog 20 MB/s for 180 s": lambda: simulate(lasting(20e6, 180)),
    "hog 20 MB/s for ever": lambda: simulate(lasting(20e6, None)),
    "hog 200 MB/s for 5 s": lambda: simulate(lasting(200e6, 5)),
    "hog 200 MB/s for 10 s": lambda: simulate(lasting(200e6, 10)),
    "hog 200 MB/s for 20 s": lambda: simulate(lasting(200e6, 20)),
    "hog 2 MB/s for ever": lambda: simulate(lasting(2e6, None)),
    "hog 20 MB/s for ever, load 130 s": lambda: simulate(lasting(20e6, None), load_seconds=130),
    "leak 5 MB/s": lambda: simulate(own=lasting(5e6, None), leaks=True),
    "leak 50 MB/s": lambda: simulate(own=lasting(50e6, None), leaks=True),
    "leak 5 MB/s, hog 10 MB/s for 60 s": lambda: simulate(lasting(10e6, 60), lasting(5e6, None)),
    "prompt cache 1 GiB, 30 MB/s": lambda: simulate(own=lasting(30e6, None), bounded=True, cache_mib=1024),
    "step 600 MiB": lambda: simulate(step_of(600 * MIB)),
    "step 1.5 GiB": lambda: simulate(step_of(1.5 * GIB)),
}


Way = Callable[..., float]


@contextlib.contextmanager
def foreseeing(name: str) -> Iterator[None]:
    """One of `WAYS` to foresee."""
    ending = 1e9 if name == "30 s of all" else foresight.ENDING_SECONDS
    with (
        mock.patch.object(foresight, "foreseen_seconds", WAYS[name]),
        mock.patch.object(foresight, "ENDING_SECONDS", ending),
    ):
        yield


def _lasted(factor: float, most: float | None = None) -> Way:
    def seconds(growing: foresight.Growing | None, unhelped: float, now: float, *_: object) -> float:
        lasted = foresight.SEEN_SECONDS + (0.0 if growing is None else now - growing.since)
        return min(factor * lasted, unhelped if most is None else most)

    return seconds


WAYS: dict[str, Way] = {
    "30 s of all": lambda *_: 30.0,
    "nothing": lambda *_: 0.0,
    "what it lasted": _lasted(1.0),
    "twice what it lasted, <= load + 10 s": _lasted(2.0, 30.0),
    "twice what it lasted": foresight.foreseen_seconds,
    "four times what it lasted": _lasted(4.0),
    "until helped": lambda _growing, unhelped, *_: unhelped,
}
"""`30 s of all`: growth of the backend's own, too."""


def many(count: int = 400) -> tuple[float, int, int, float]:
    """Of as many growths of others that last 3 to 300 s: restarts each, how many saw a kill, how many a load that failed, tokens left."""
    random, found = Random(4), []
    for _ in range(count):
        seconds = math.exp(random.uniform(math.log(3), math.log(300)))
        rate = math.exp(random.uniform(math.log(3e6), math.log(300e6)))
        start = random.uniform(1.05, 3) * NEAR
        found.append(simulate(lasting(rate, max(1, int(min(seconds, 7 * GIB / rate)))), start_headroom=int(start)))
    kills, failed = sum(one.kills > 0 for one in found), sum(one.failed_loads > 0 for one in found)
    return sum(one.restarts for one in found) / count, kills, failed, sum(one.context for one in found) / count


if __name__ == "__main__":
    print("restarts / OOM kills / failed loads / tokens left, MiB of the largest cut")
    for way in WAYS:
        with foreseeing(way):
            print(f"\n{way}")
            for name, run in CURVES.items():
                one = run()
                print(
                    f"  {name:36} {one.restarts} / {one.kills} / {one.failed_loads} / {one.context:6}   {one.most_cut_bytes // MIB}"
                )
            restarts, kills, failed, tokens = many()
            print(f"  {'400 hogs of 3 to 300 s':36} {restarts:.2f} / in {kills} / in {failed} / {tokens:.0f}")
