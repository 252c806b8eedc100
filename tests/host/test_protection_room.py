"""Nothing is kept for good where too little would stay for others: random trees of cgroups, and what cannot be read."""

from __future__ import annotations

import pytest
from fakes.fake_kernel import FakeKernel, Limit, Text, add_cgroups, memory_stat, usual_kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned import tunables
from moetuned.decide.hard_protection import most_bytes
from moetuned.host import protection_room
from moetuned.host.protection_room import too_much
from moetuned.schema.config import Backend, Config, Limits
from moetuned.schema.tunable import CgroupTarget, Targets, TunableSpec

ROOT = "/sys/fs/cgroup"
GIB = 1 << 30
CGROUPS = ("a.slice/one.service", "a.slice/two.service", "a.slice/other.service", "b.slice/three.service", "c.slice")
ASKING = {name: f"{ROOT}/{name}" for name in (CGROUPS[0], CGROUPS[1], CGROUPS[3])} | {"idle": None}
LIMITS = st.sampled_from(["max", "max", *(str(size * GIB) for size in (1, 4, 9, 20, 64))])


def plan(kernel: FakeKernel, **more: int) -> tuple[TunableSpec, ...]:
    targets = tuple(CgroupTarget(name, ASKING[name], memory_min_bytes=size) for name, size in more.items())
    return tunables.instances(kernel, tunables.load("memory_min"), Targets(cgroups=targets))


def meminfo(kernel: FakeKernel, total_gib: int, outside_gib: int, own_gib: dict[str, int]) -> dict[str, int]:
    """What cannot be reclaimed in each cgroup and outside of all, in /proc/meminfo and in the cgroups and those above; bytes by name."""
    held = {name: own_gib.get(name, 0) * GIB for name in CGROUPS}
    for name in [*CGROUPS, "a.slice", "b.slice"]:
        size = sum(each for below, each in held.items() if below == name or below.startswith(f"{name}/"))
        kernel.files[f"{ROOT}/{name}/memory.current"] = Text(f"{size}\n")
        kernel.files[f"{ROOT}/{name}/memory.stat"] = Text(memory_stat(size))
    kib = (sum(held.values()) + outside_gib * GIB) // 1024
    kernel.files["/proc/meminfo"] = Text(f"MemTotal: {total_gib * GIB // 1024} kB\nAnonPages: {kib} kB\nShmem: 0 kB\n")
    return held


@settings(max_examples=150, deadline=None)
@given(
    total_gib=st.integers(1, 128),
    asked=st.dictionaries(st.sampled_from(list(ASKING)), st.integers(0, 40).map(lambda size: size * GIB), min_size=1),
    standing=st.dictionaries(st.sampled_from([*CGROUPS, "a.slice", "b.slice"]), LIMITS),
    limits=st.dictionaries(st.sampled_from([*CGROUPS, "a.slice", "b.slice"]), LIMITS),
    outside_gib=st.integers(0, 16),
    own_gib=st.dictionaries(st.sampled_from(CGROUPS), st.integers(0, 8)),
)
def test_after_any_plan_enough_stays_at_every_level(
    total_gib: int,
    asked: dict[str, int],
    standing: dict[str, str],
    limits: dict[str, str],
    outside_gib: int,
    own_gib: dict[str, int],
) -> None:
    """What holds is looked at in the files that the plan leaves, without any of the plan's own sums. `own_gib` cannot be reclaimed."""
    kernel = usual_kernel()
    add_cgroups(kernel, *CGROUPS)
    held = meminfo(kernel, total_gib, outside_gib, own_gib)
    for name, value in standing.items():
        kernel.files[f"{ROOT}/{name}/memory.min"] = Limit(value)
    for name, value in limits.items():
        kernel.files[f"{ROOT}/{name}/memory.max"] = Limit(value)
    found = [one for one in plan(kernel, **asked) if one.skip is None]
    after = {
        name: int(standing.get(name, "0").replace("max", str(1 << 60))) for name in (*CGROUPS, "a.slice", "b.slice")
    }
    for one in found:
        name, wanted = one.name.partition(" ")[2], int(one.asked or "")
        after[name] = wanted if name in asked else max(after[name], wanted)
    if not found:
        return
    limit_of = {name: None if limits.get(name, "max") == "max" else int(limits[name]) for name in after}
    assert sum(after[name] for name in ("a.slice", "b.slice", "c.slice")) + asked.get("idle", 0) <= most_bytes(
        total_gib * GIB
    )
    in_use = sum(held[name] for name in CGROUPS) + outside_gib * GIB
    kept_beside = sum(max(0, size - held.get(name, 0)) for name, size in asked.items())
    if any(asked.values()):
        assert total_gib * GIB - in_use - kept_beside >= int(0.16 * total_gib * GIB), "the limit is not near afterwards"
    changed = {one.name.partition(" ")[2] for one in found}
    for slice_ in ("a.slice", "b.slice"):
        below = sum(after[name] for name in CGROUPS if name.startswith(f"{slice_}/"))
        if slice_ not in changed:
            continue
        assert after[slice_] >= sum(after[name] for name in changed if name.startswith(f"{slice_}/"))
        limit = limit_of[slice_]
        assert limit is None or below <= most_bytes(limit)
    for name in changed & set(asked):
        own = limit_of[name]
        assert own is None or after[name] <= own
        assert after[name] == asked[name]


@pytest.mark.parametrize("file", ["memory.max", "memory.high"])
@pytest.mark.parametrize("where", ["a.slice", "a.slice/one.service"])
@pytest.mark.parametrize("text", [None, "much\n"])
def test_a_limit_that_cannot_be_read_is_no_permission(file: str, where: str, text: str | None) -> None:
    kernel = usual_kernel()
    add_cgroups(kernel, *CGROUPS)
    if text is None:
        del kernel.files[f"{ROOT}/{where}/{file}"]
    else:
        kernel.files[f"{ROOT}/{where}/{file}"] = Text(text)
    (found,) = plan(kernel, **{CGROUPS[0]: 4096})
    assert f"how much memory {where} has is unknown" in (found.skip or "")


def short_plan(outside_gib: int, **more: object) -> str | None:
    """Why nothing of 8 GiB is kept on a machine of 32 GiB (near its limit below 2.56 GiB), with 2 GiB of the backend's own."""
    kernel = usual_kernel()
    add_cgroups(kernel, *CGROUPS)
    meminfo(kernel, 32, outside_gib, {CGROUPS[0]: 2})
    target = CgroupTarget("one", ASKING[CGROUPS[0]], memory_min_bytes=8 * GIB)
    found = tunables.instances(kernel, tunables.load("memory_min"), Targets(cgroups=(target,), **more))
    return next(one for one in found if one.name.endswith("one.service")).skip


def test_where_others_use_too_much_it_is_refused_and_given_up_only_when_it_is_closer() -> None:
    held = {"originals": {f"{ROOT}/{CGROUPS[0]}/memory.min": "0"}}
    assert short_plan(18) is None, "8 + 18 of 32: 6 are left, 5.12 must be"
    assert "others use 19.0 GiB of the 32.0 GiB of this machine" in (short_plan(19) or "")
    assert "beside 8.0 GiB that would be kept 5.0 GiB would be left, and 5.1 GiB must be" in (short_plan(19) or "")
    assert short_plan(20, **held) is None, "3.2 must be as long as it is kept"
    assert "and 3.2 GiB must be" in (short_plan(21, **held) or "")
    assert short_plan(19, limits=Limits(near="1GiB")) is None
    assert short_plan(0, short="memory was near its limit") == "memory was near its limit"


def test_a_slice_that_others_fill_is_no_room_either() -> None:
    kernel = usual_kernel()
    add_cgroups(kernel, *CGROUPS)
    meminfo(kernel, 64, 0, {CGROUPS[0]: 1, CGROUPS[2]: 6})
    kernel.files[f"{ROOT}/a.slice/memory.max"] = Limit(str(10 * GIB))
    (found,) = plan(kernel, **{CGROUPS[0]: 3 * GIB})
    assert "others use 6.0 GiB of the 10.0 GiB of a.slice" in (found.skip or "")
    del kernel.files[f"{ROOT}/a.slice/memory.stat"]
    (found,) = plan(kernel, **{CGROUPS[0]: 3 * GIB})
    assert "how much of the memory of a.slice can be reclaimed is unknown" in (found.skip or "")


def test_where_it_is_unknown_what_can_be_reclaimed_nothing_is_kept() -> None:
    kernel = usual_kernel()
    add_cgroups(kernel, *CGROUPS)
    kernel.files["/proc/meminfo"] = Text("MemTotal: 67108864 kB\n")
    (found,) = plan(kernel, **{CGROUPS[0]: 4096})
    assert "how much of the memory of this machine can be reclaimed is unknown" in (found.skip or "")


def test_without_meminfo_nothing_is_kept() -> None:
    kernel = usual_kernel()
    add_cgroups(kernel, *CGROUPS)
    del kernel.files["/proc/meminfo"]
    (found,) = plan(kernel, **{CGROUPS[0]: 4096})
    assert "how much memory this machine has is unknown" in (found.skip or "")


def test_a_config_that_asks_for_too_much_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protection_room, "RealFS", usual_kernel)

    def warned(*sizes: str | int | None) -> list[str]:
        config = Config(backends=[Backend(f"b{number}", memory_min=size) for number, size in enumerate(sizes)])
        return [f"{one.path} {one.severity} {one.hint}" for one in too_much(config)]

    assert warned() == warned(None) == warned("48GiB") == warned("24GiB", 24 * GIB) == warned("none", "90GiB") == []
    first, second = warned("40GiB", None, "9GiB")
    assert first.startswith(
        "backends[0].memory_min warning is not set: 49.0 GiB would be kept in all, and of the 64.0 GiB"
    )
    assert second.startswith("backends[2].memory_min")
