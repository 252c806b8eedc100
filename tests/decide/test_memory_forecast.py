"""Memory is called near its limit ten seconds before the OOM killer, wherever it grows slower than 200 MB/s; and at no other time."""

from __future__ import annotations

import itertools

import pytest
from memory_curves import (
    BEFORE_SECONDS,
    GIB,
    MB,
    Machine,
    Shape,
    accelerating,
    bursts,
    events,
    first_near,
    kill_seconds,
    linear,
    noisy,
    raw_sample,
    steps,
)

from moetuned.decide.facts import BackendFacts
from moetuned.decide.memory_forecast import forecast
from moetuned.decide.window import Window, window_of
from moetuned.parse.assemble import assemble
from moetuned.schema.event import EventName
from moetuned.schema.model import ModelLayout
from moetuned.schema.sample import BackendIdentity

LEAD_SECONDS = 10.0
SHAPES = {
    "linear": linear,
    "accelerating": accelerating,
    "noisy": noisy,
    "every 3 s": lambda rate: steps(rate, 3),
    "every 5 s": lambda rate: steps(rate, 5),
    "2 s of 6": lambda rate: bursts(rate, 2, 4),
    "3 s of 10": lambda rate: bursts(rate, 3, 7),
    "5 s of 20": lambda rate: bursts(rate, 5, 15),
    "4 s of 5": lambda rate: bursts(rate, 4, 1),
}
WHERE = ("own", "sibling", "above", "machine")
SECONDS = 60.0
"""So long before the kill the growth begins, where there is room for it."""


def machine_for(shape: Shape, gib: int, **more: object) -> Machine:
    """One that is full in about SECONDS, or sooner where it is too small for that."""
    limit = gib * GIB
    machine = Machine(limit, 0, **more)  # type: ignore[arg-type]
    room = limit + machine.swap_bytes - limit // 20
    return Machine(limit, limit + machine.swap_bytes - int(min(room, shape(SECONDS))), **more)  # type: ignore[arg-type]


CURVES = [
    pytest.param(shape(rate * MB), gib, where, 1 + number % 2, id=f"{name} {rate} MB/s, {gib} GiB, {where}, v{1 + number % 2}")
    for number, ((name, shape), (rate, gib), where) in enumerate(
        (one, size, WHERE[(number + position) % len(WHERE)])
        for number, one in enumerate(SHAPES.items())
        for position, size in enumerate(((10, 1), (25, 2), (60, 4), (110, 8), (195, 16), (195, 64)))
    )
]  # fmt: skip


@pytest.mark.parametrize(("shape", "gib", "where", "version"), CURVES)
def test_ten_seconds_before_the_kill(shape: Shape, gib: int, where: str, version: int) -> None:
    machine = machine_for(shape, gib, where=where, version=version)
    kill = kill_seconds(machine, shape)
    assert kill > 20
    near = first_near(machine, shape, kill)
    assert near is not None
    assert 0 <= near <= kill - LEAD_SECONDS


@pytest.mark.parametrize("swap_gib", [1, 8])
@pytest.mark.parametrize("version", [1, 2])
def test_with_swap_it_is_told_before_the_swap_is_needed(version: int, swap_gib: int) -> None:
    shape = linear(100 * MB)
    machine = Machine(4 * GIB, GIB, version=version, swap_bytes=swap_gib * GIB)
    full = kill_seconds(Machine(4 * GIB, GIB), shape)
    near = first_near(machine, shape, kill_seconds(machine, shape))
    assert near is not None
    assert near <= full - LEAD_SECONDS


def test_memory_high_is_a_limit_though_nothing_is_killed_at_it() -> None:
    shape = linear(100 * MB)
    machine = Machine(4 * GIB, GIB, high=True)
    near = first_near(machine, shape, 40)
    assert near is not None
    assert near <= kill_seconds(machine, shape) - LEAD_SECONDS


SMALL = [
    pytest.param(shape(rate * MB), gib, id=f"{name} {rate} MB/s, {gib} GiB")
    for name, shape in (("linear", linear), ("noisy", noisy), ("4 s of 5", lambda rate: bursts(rate, 4, 1)))
    for rate, gib in ((100, 1), (195, 1), (195, 2))
]


@pytest.mark.parametrize(("shape", "gib"), SMALL)
def test_a_cgroup_that_is_full_in_a_few_seconds_gets_what_warning_there_can_be(shape: Shape, gib: int) -> None:
    """A growth can be told from one large allocation only after three looks: what is full by then gets no ten seconds."""
    machine = Machine(gib * GIB, gib * GIB // 20)
    kill = kill_seconds(machine, shape)
    near = first_near(machine, shape, kill + 1)
    assert near is not None
    assert near <= max(kill - LEAD_SECONDS, 5.0)


# --- and at no other time ---


def no_alarm(machine: Machine, shape: Shape, seconds: float, health: str = "ok") -> bool:
    return not any(begun.name is EventName.MEMORY_NEAR_LIMIT for _, begun in events(machine, shape, seconds, health))


@pytest.mark.parametrize("rate", [50, 150, 600])
@pytest.mark.parametrize("version", [1, 2])
def test_loading_repacked_weights_that_fit(rate: int, version: int) -> None:
    whole = 7 * GIB
    loading = lambda seconds: min(rate * MB * seconds, whole)  # noqa: E731
    assert no_alarm(Machine(8 * GIB, GIB // 8, version=version), loading, whole / rate / MB + 5, "loading")


def test_one_large_allocation() -> None:
    assert no_alarm(Machine(8 * GIB, GIB), lambda seconds: 4 * GIB if seconds > 3 else 0, 60)


def test_one_large_allocation_after_small_ones() -> None:
    """Repacked weights that fit, copied from the page cache at once, after a load that allocated a little every few seconds."""
    noise = lambda seconds: int(seconds / 3) * MB + (700 * MB if seconds > 14 else 0)  # noqa: E731
    assert no_alarm(Machine(GIB, GIB // 16), noise, 60)


def test_buffers_of_the_first_requests() -> None:
    assert no_alarm(Machine(8 * GIB, 2 * GIB), lambda seconds: min(3.0, seconds) * 300 * MB, 60)


def test_a_buffer_that_comes_and_goes() -> None:
    saw = lambda seconds: (seconds % 6) * 150 * MB  # noqa: E731
    assert no_alarm(Machine(4 * GIB, GIB), saw, 120)


def test_steps_that_end() -> None:
    """A prompt cache that is full after eight requests."""
    shape = lambda seconds: min(8, int(seconds / 8)) * 200 * MB  # noqa: E731
    assert no_alarm(Machine(8 * GIB, 2 * GIB), shape, 150)


def test_slow_growth_far_from_the_limit() -> None:
    assert no_alarm(Machine(16 * GIB, 4 * GIB), linear(20 * MB), 120)


def window(limits: list[int], used: list[int], cache: list[int]) -> Window:
    """One second apart."""
    identity = BackendIdentity("one", pid=7, cgroup_directory="/cg/slice/llm", cgroup_version=2)
    samples = []
    for number, (limit, anonymous, file) in enumerate(zip(limits, used, cache, strict=True)):
        raw = raw_sample(Machine(limit, anonymous), 0.0, 100.0 + number, 1.0, "ok")
        raw.files["/cg/slice/llm/memory.current"] = f"{anonymous + file}\n"
        raw.files["/cg/slice/llm/memory.stat"] = f"anon {anonymous}\nfile {file}\ninactive_file {file}\nactive_file 0\n"
        samples.append(assemble(raw, [identity]))
    found = window_of(samples, "one", BackendFacts())
    assert found is not None
    return found


def test_page_cache_that_fills_is_no_growth() -> None:
    filling = [number * 700 * MB for number in range(10)]
    assert forecast(window([8 * GIB] * 10, [GIB] * 10, filling)) is None


def test_a_limit_that_somebody_lowers_is_no_growth() -> None:
    falling = [16 * GIB - number * GIB for number in range(10)]
    assert forecast(window(falling, [2 * GIB] * 10, [GIB] * 10)) is None


def test_what_grows_slowly_and_what_shrinks() -> None:
    assert forecast(window([8 * GIB] * 10, [GIB + number * MB // 2 for number in range(10)], [0] * 10)) is None
    assert forecast(window([8 * GIB] * 10, [GIB - number * 9 * MB for number in range(10)], [0] * 10)) is None


def test_growth_and_seconds() -> None:
    found = forecast(window([2 * GIB] * 8, [GIB + number * 50 * MB for number in range(8)], [0] * 8))
    assert found is not None
    assert found.place == "/cg/slice/llm"
    assert found.growth_bytes_per_second == pytest.approx(50 * MB)
    assert found.seconds == pytest.approx((GIB - 350 * MB) / (50 * MB))


def test_a_faster_growth_is_at_its_limit_sooner() -> None:
    even = [GIB + number * 40 * MB for number in range(8)]
    faster = [GIB + number * number * 40 * MB // 7 for number in range(8)]
    one, other = forecast(window([2 * GIB] * 8, even, [0] * 8)), forecast(window([2 * GIB] * 8, faster, [0] * 8))
    assert one is not None
    assert other is not None
    assert even[-1] == faster[-1]
    assert other.seconds < one.seconds


def test_a_growth_that_has_just_begun_does_not_quicken() -> None:
    """Its first look holds only a part of a second; later ones are by turns a little faster and slower."""
    used = [GIB, GIB, GIB + 30 * MB, GIB + 80 * MB, GIB + 145 * MB, GIB + 208 * MB]
    found = forecast(window([8 * GIB] * 6, used, [0] * 6))
    assert found is None or found.seconds > (7 * GIB - 208 * MB) / (70 * MB)


def loading(copied: list[int], read: list[int], limit: int, facts: BackendFacts, health: str = "loading") -> Window:
    """One second apart: its own memory, and what it read since it started."""
    identity = BackendIdentity("one", pid=7, cgroup_directory="/cg/slice/llm", cgroup_version=2)
    samples = []
    for number, (own, so_far) in enumerate(zip(copied, read, strict=True)):
        raw = raw_sample(Machine(limit, own), 0.0, 100.0 + number, 1.0, health)
        raw.files["/proc/7/io"] = f"read_bytes: {so_far}\n"
        samples.append(assemble(raw, [identity]))
    found = window_of(samples, "one", facts)
    assert found is not None
    return found


EXPERTS = ModelLayout(24, 16, 4, 332_000, 764 * MB, 15 * MB, 48 * MB)
COPIED = [20 * MB + number * 57 * MB for number in range(4)]
READ = [700 * MB + number * 60 * MB for number in range(4)]


@pytest.mark.parametrize("facts", [BackendFacts(779 * MB, EXPERTS), BackendFacts(779 * MB)], ids=["experts", "dense"])
def test_weights_that_are_copied_while_it_loads_and_have_no_room(facts: BackendFacts) -> None:
    found = forecast(loading(COPIED, READ, 545 * MB, facts))
    assert found is not None
    assert found.seconds == pytest.approx((545 - 191) / 57, rel=0.001)
    assert found.growth_bytes_per_second == pytest.approx(57 * MB, rel=0.001)


@pytest.mark.parametrize(
    ("copied", "read", "limit", "facts"),
    [
        pytest.param(COPIED, READ, 900 * MB, BackendFacts(779 * MB, EXPERTS), id="they fit"),
        pytest.param([20 * MB] * 4, READ, 545 * MB, BackendFacts(779 * MB, EXPERTS), id="nothing is copied"),
        pytest.param([number * 3 * MB for number in range(4)], READ[:1] * 4, 545 * MB, BackendFacts(779 * MB, EXPERTS), id="it does not read"),
        pytest.param([0, 0, 0, 250 * MB], READ, 545 * MB, BackendFacts(779 * MB, EXPERTS), id="one large allocation"),
        pytest.param(COPIED[:3], READ[:3], 545 * MB, BackendFacts(779 * MB, EXPERTS), id="two looks"),
        pytest.param(COPIED, READ, 545 * MB, BackendFacts(), id="nothing is known of the model"),
    ],
)  # fmt: skip
def test_loading_that_is_no_growth(copied: list[int], read: list[int], limit: int, facts: BackendFacts) -> None:
    assert forecast(loading(copied, read, limit, facts)) is None


def test_the_curves_are_what_they_say() -> None:
    for name, shape in SHAPES.items():
        curve = [shape(100 * MB)(second) for second in range(61)]
        assert all(later >= earlier for earlier, later in itertools.pairwise(curve)), name
        assert 40 * 100 * MB <= curve[60] <= 75 * 100 * MB, name
    assert BEFORE_SECONDS > 10
