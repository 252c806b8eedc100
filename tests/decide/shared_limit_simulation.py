"""A backend whose prompt cache fills, and beside it, below one common limit, a program that takes memory: what relief decides.

Through windows, signals and detector, as the daemon does it; times of looks, of requests and of the program are drawn from a seed.
`python tests/decide/shared_limit_simulation.py` prints how often which context is left.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

from moetuned.decide import detector, relief, signals
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.foresight import own_share
from moetuned.decide.growth_kind import OWN
from moetuned.decide.memory_headroom import memory_view
from moetuned.decide.window import WINDOW_SECONDS, Window, next_window
from moetuned.schema.sample import (
    BackendHttp,
    BackendSample,
    CgroupAbove,
    CgroupMemory,
    MachineSample,
    ProcessCounters,
    Sample,
    Slot,
)
from moetuned.schema.signals import Signals

MIB = 1 << 20
LIMIT, NEAR, BASE = 602 * MIB, int(0.08 * 602 * MIB), 30 * MIB
PER_TOKEN, PREFERRED, MINIMUM = 114688, 2560, 512
LOAD_SECONDS, ALLOCATED_AT_ONCE = 3.0, 8 * MIB
SETTINGS = relief.ReliefSettings(
    act=True, at_most=3, at_most_seconds=3600.0, cool_down_seconds=120.0, target_headroom_bytes=int(1.5 * NEAR),
    near_headroom_bytes=NEAR, settle_seconds=5.0, looks=2, drain_seconds=30.0,
)  # fmt: skip


class Decided(msgspec.Struct, frozen=True):
    """The restart relief decided on, and the headroom it leaves once the program has all that it wants. `kind`: what was said to grow."""

    context: int
    headroom_bytes: int
    kind: str


class _Shared:
    """`takes`: whether the program is there; `cache_mib`: of the prompt cache, 6.5 MiB a request."""

    def __init__(self, random: Random, *, takes: bool, cache_mib: int) -> None:
        self.cache_bytes, self.request_seconds = cache_mib * MIB, random.uniform(0.9, 1.9)
        self.from_second, self.rate = random.uniform(3.0, 6.0), random.uniform(0.75, 1.0) * 20 * MIB
        past_limit = int(0.4 * (PREFERRED - MINIMUM) * PER_TOKEN)
        self.wants = LIMIT - self.own(self.from_second) + past_limit if takes else 0

    def own(self, at: float) -> int:
        """Bytes of the backend's own."""
        filled = int(6.5 * MIB * int(at / self.request_seconds))
        return BASE + PREFERRED * PER_TOKEN + min(self.cache_bytes, filled)

    def others(self, at: float) -> int:
        """Bytes of the program."""
        if at < self.from_second:
            return 0
        steps = int((at - self.from_second) * self.rate / ALLOCATED_AT_ONCE) + 1
        return min(self.wants, steps * ALLOCATED_AT_ONCE)

    def sample(self, at: float) -> Sample:
        """What is read of it."""
        own, busy = self.own(at), Slot(0, processing=True, task_id=int(at / self.request_seconds), decoded_tokens=1)
        used = CgroupMemory(2, limit_bytes=LIMIT, current_bytes=own + self.others(at), reclaimable_file_bytes=0)
        backend = BackendSample(
            "one", process=ProcessCounters(1, 1, rss_anon_bytes=own, swap_bytes=0), cgroup_directory="/s/llm",
            cgroup=CgroupMemory(2, current_bytes=own, reclaimable_file_bytes=0),
            above=(CgroupAbove(directory="/s", memory=used),), http=BackendHttp("ok", slots=(busy,)),
        )  # fmt: skip
        return Sample(at, at, MachineSample(), (backend,))


def decided(seed: int, *, takes: bool = True, cache_mib: int = 64) -> Decided | None:
    """The first restart; None: there was none within two minutes."""
    random = Random(seed)
    shared, at = _Shared(random, takes=takes, cache_mib=cache_mib), random.random()
    facts = BackendFacts(prompt_cache_bytes=shared.cache_bytes, kv_cache_bytes=PREFERRED * PER_TOKEN)
    window: Window | None = None
    state, remembered = detector.DetectorState("one"), relief.ReliefState()
    while at < 120.0:
        sample = shared.sample(at)
        window = next_window(window, sample, "one", facts, WINDOW_SECONDS)
        assert window is not None
        seen, backend = signals.on_demand(window, "one", at), sample.backends[0]
        step = detector.step(state, seen, backend, facts, DetectorSettings())
        state, kind = step.state, step.state.memory.growth.growth.kind
        memory = msgspec.structs.replace(
            memory_view(sample.machine, backend, window.now.rooms), seconds_to_limit=seen.get("seconds_to_limit"), growth_kind=kind.value
        )  # fmt: skip
        known = _facts(shared, at, _own_growth(seen, is_own=kind in OWN))
        decision = relief.step(remembered, step.verdict, memory, known, SETTINGS, at)
        remembered, restart = decision.state, decision.restart
        if restart is not None:
            cache = shared.cache_bytes if restart.prompt_cache_mib is None else restart.prompt_cache_mib * MIB
            left = LIMIT - BASE - restart.context_length * PER_TOKEN - cache - shared.wants
            return Decided(restart.context_length, left, kind.value)
        at += random.uniform(0.98, 1.15)
    return None


def _own_growth(seen: Signals, *, is_own: bool) -> float | None:
    own = seen.get("anonymous_growth_bytes_per_second")
    others = seen.get("others_growth_to_limit_bytes_per_second")
    return own_share(own, others, seen.get("growth_to_limit_bytes_per_second"), is_own=is_own)


def _facts(shared: _Shared, at: float, own_growth: float | None) -> relief.ReliefFacts:
    return relief.ReliefFacts(
        supervised=True, context_changeable=True, prompt_cache_changeable=True, context_length=PREFERRED, minimum_context=MINIMUM,
        prompt_cache_mib=shared.cache_bytes // MIB, kv_bytes_per_token=PER_TOKEN, ready=True, own_bytes=shared.own(at),
        grown_bytes=shared.own(at) - BASE - PREFERRED * PER_TOKEN, own_growth_bytes_per_second=own_growth, restart_seconds=LOAD_SECONDS,
    )  # fmt: skip


if __name__ == "__main__":
    for about, takes, cache_mib in (("both grow", True, 64), ("the program", True, 0), ("the cache", False, 4096)):
        found = [one for seed in range(150) if (one := decided(seed, takes=takes, cache_mib=cache_mib)) is not None]
        low = sum(one.headroom_bytes < NEAR for one in found)
        contexts = sorted(Counter(one.context for one in found).items())
        print(
            f"{about}: {len(found)} restarts, {low} leave memory near its limit; contexts {contexts}; {Counter(one.kind for one in found)}"
        )
