"""What each cgroup must have: a backend's own, and those above as much as is asked for below them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from fakes.fake_kernel import FakeKernel, Limit, Text, add_cgroups, usual_kernel

from moetuned.host.cgroup_protection import Asked, protection_settings
from moetuned.host.fs import HostFS
from moetuned.schema.tunable import Bound, CgroupTarget, Codec, Place, Targets, TunableSpec

ROOT = "/sys/fs/cgroup"
MIB = 1 << 20
SPEC = TunableSpec("kept", "backends.kept", Place(f"{ROOT}/*/memory.min", Codec.LIMIT), {}, lowest=0, per_device=True)


@pytest.fixture
def kernel() -> FakeKernel:
    made = usual_kernel()
    add_cgroups(made, "ai.slice/glm.service", "ai.slice/qwen.service", "ai.slice/deep/in", "else")
    return made


def asking(**bytes_of: int | None) -> Targets:
    places = {"glm": "ai.slice/glm.service", "qwen": "ai.slice/qwen.service", "deep": "ai.slice/deep/in"}
    return Targets(
        cgroups=tuple(
            CgroupTarget(name, f"{ROOT}/{places[name]}" if name in places else None, memory_min_bytes=size)
            for name, size in bytes_of.items()
        )
    )


def settings(kernel: FakeKernel, targets: Targets, refused: Mapping[str, str] | None = None) -> dict[str, TunableSpec]:
    def refuse(_fs: HostFS, asked: Asked) -> dict[str, str]:
        return {each: why for each, why in (refused or {}).items() if each in asked.own}

    found = protection_settings(
        kernel, targets, SPEC, "MemoryMin", lambda one: one.memory_min_bytes, because="for glm", refuse=refuse
    )
    return {one.name.removeprefix("kept "): one for one in found}


def asked(found: Mapping[str, TunableSpec]) -> dict[str, str | None]:
    return {name: one.asked for name, one in found.items() if one.skip is None}


def test_each_above_has_what_those_below_ask_together(kernel: FakeKernel) -> None:
    kernel.files[f"{ROOT}/ai.slice/qwen.service/memory.min"] = Limit(str(5 * MIB))
    found = settings(kernel, asking(glm=3 * MIB + 4097, deep=2 * MIB, nobody=None))
    assert asked(found) == {
        "ai.slice": str(10 * MIB + 4096),
        "ai.slice/deep": str(2 * MIB),
        "ai.slice/deep/in": str(2 * MIB),
        "ai.slice/glm.service": str(3 * MIB + 4096),
    }
    assert [one.bound for one in found.values()] == [Bound.AT_LEAST, Bound.AT_LEAST, Bound.SET, Bound.SET]
    assert found["ai.slice/glm.service"].because == "for glm"
    assert found["ai.slice"].because == "the cgroups in it are protected only as far as it is"


def test_what_is_ours_and_goes_is_not_asked_for_above(kernel: FakeKernel) -> None:
    """The config has it for another backend now: what stands in the first is given back in the same go."""
    path = f"{ROOT}/ai.slice/qwen.service/memory.min"
    kernel.files[path] = Limit(str(5 * MIB))
    targets = asking(glm=3 * MIB)
    ours = Targets(cgroups=targets.cgroups, originals={path: str(MIB)})
    assert asked(settings(kernel, targets))["ai.slice"] == str(8 * MIB)
    assert asked(settings(kernel, ours))["ai.slice"] == str(4 * MIB)


def test_what_is_refused_is_not_asked_for_above(kernel: FakeKernel) -> None:
    refused = {f"{ROOT}/ai.slice/deep/in": "too much"}
    found = settings(kernel, asking(glm=MIB, deep=2 * MIB), refused)
    assert asked(found) == {"ai.slice": str(MIB), "ai.slice/glm.service": str(MIB)}
    assert (found["ai.slice/deep/in"].skip, found["ai.slice/deep/in"].asked) == ("too much", str(2 * MIB))
    all_of_them = refused | {f"{ROOT}/ai.slice/glm.service": "too much"}
    assert asked(settings(kernel, asking(glm=MIB, deep=2 * MIB), all_of_them)) == {}


def test_units_are_systemds(kernel: FakeKernel) -> None:
    assert {one.place.unit for one in settings(kernel, asking(glm=MIB)).values()} == {None}
    kernel.files["/run/systemd/system"] = Text("")
    places = [one.place for one in settings(kernel, asking(glm=MIB)).values()]
    assert [(place.unit, place.unit_property) for place in places] == [
        ("ai.slice", "MemoryMin"),
        ("glm.service", "MemoryMin"),
    ]


def test_where_there_is_no_cgroup_the_reason_is_said(kernel: FakeKernel) -> None:
    del kernel.files[f"{ROOT}/ai.slice/memory.min"]
    found = settings(kernel, asking(glm=MIB, idle=MIB))
    assert asked(found) == {}
    assert "ai.slice has no memory.min" in (found[f"{ROOT}/ai.slice/glm.service"].skip or "")
    assert "the cgroup of idle is not known" in (found["idle"].skip or "")
