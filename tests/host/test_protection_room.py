"""Nothing is kept for good where too little would stay for others: random trees of cgroups, and what cannot be read."""

from __future__ import annotations

import pytest
from fakes.fake_kernel import FakeKernel, Limit, Text, add_cgroups, usual_kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned import tunables
from moetuned.decide.hard_protection import most_bytes
from moetuned.host import protection_room
from moetuned.host.protection_room import too_much
from moetuned.schema.config import Backend, Config
from moetuned.schema.tunable import CgroupTarget, Targets, TunableSpec

ROOT = "/sys/fs/cgroup"
GIB = 1 << 30
CGROUPS = ("a.slice/one.service", "a.slice/two.service", "a.slice/other.service", "b.slice/three.service", "c.slice")
ASKING = {name: f"{ROOT}/{name}" for name in (CGROUPS[0], CGROUPS[1], CGROUPS[3])} | {"idle": None}
LIMITS = st.sampled_from(["max", "max", *(str(size * GIB) for size in (1, 4, 9, 20, 64))])


def plan(kernel: FakeKernel, **more: int) -> tuple[TunableSpec, ...]:
    targets = tuple(CgroupTarget(name, ASKING[name], memory_min_bytes=size) for name, size in more.items())
    return tunables.instances(kernel, tunables.load("memory_min"), Targets(cgroups=targets))


@settings(max_examples=150, deadline=None)
@given(
    total_gib=st.integers(1, 128),
    asked=st.dictionaries(st.sampled_from(list(ASKING)), st.integers(0, 40).map(lambda size: size * GIB), min_size=1),
    standing=st.dictionaries(st.sampled_from([*CGROUPS, "a.slice", "b.slice"]), LIMITS),
    limits=st.dictionaries(st.sampled_from([*CGROUPS, "a.slice", "b.slice"]), LIMITS),
)
def test_after_any_plan_enough_stays_at_every_level(
    total_gib: int, asked: dict[str, int], standing: dict[str, str], limits: dict[str, str]
) -> None:
    """What holds is looked at in the files that the plan leaves, without any of the plan's own sums."""
    kernel = usual_kernel()
    kernel.files["/proc/meminfo"] = Text(f"MemTotal: {total_gib * GIB // 1024} kB\n")
    add_cgroups(kernel, *CGROUPS)
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
