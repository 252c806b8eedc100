from __future__ import annotations

import pytest

from moetuned.decide.tuning_plan import choose, plan
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.tunable import Cell, Codec, Place, Reading, StepKind, TunableSpec, Twin

RATIO = TunableSpec(
    "vm.dirty_ratio",
    "tuning.sysctl.vm.dirty_ratio",
    Place("/p/ratio", Codec.INTEGER, "/p/bytes"),
    {"moe-offload": "10"},
    lowest=0,
    highest=100,
    twin=Twin("vm.dirty_bytes", lowest=8192),
)
THP = TunableSpec(
    "thp", "tuning.thp", Place("/s/thp", Codec.CHOICE), {"moe-offload": "never"}, choices=("always", "madvise", "never")
)
OTHER = TunableSpec("vm.other", "tuning.sysctl.vm.other", Place("/p/other", Codec.INTEGER), {}, lowest=1)
SPECS = (OTHER, RATIO, THP)


def wanted(**values: object) -> tuple[dict[str, tuple[str, str, str]], tuple[str, ...]]:
    chosen, problems = choose(Tuning(**{"profile": Profile.MOE_OFFLOAD, **values}), SPECS)  # type: ignore[arg-type]
    return {item.spec.name: (item.cell.path, item.cell.value, item.asked_by) for item in chosen}, problems


def test_the_profile_alone() -> None:
    assert wanted() == (
        {
            "thp": ("/s/thp", "never", "profile moe-offload"),
            "vm.dirty_ratio": ("/p/ratio", "10", "profile moe-offload"),
        },
        (),
    )


def test_the_overlay_wins_and_adds() -> None:
    chosen, problems = wanted(sysctl={"vm.dirty_bytes": "65536", "vm.other": " 05 "}, thp="always")
    assert problems == ()
    assert chosen == {
        "thp": ("/s/thp", "always", "tuning.thp"),
        "vm.dirty_ratio": ("/p/bytes", "65536", "tuning.sysctl.vm.dirty_bytes"),
        "vm.other": ("/p/other", "5", "tuning.sysctl.vm.other"),
    }


@pytest.mark.parametrize(
    ("sysctl", "says"),
    [
        ({"vm.unknown": 1}, "tuning.sysctl.vm.unknown: moetuned does not know"),
        ({"vm.dirty_ratio": 101}, "tuning.sysctl.vm.dirty_ratio: 101 is too large; the kernel takes 100 or less"),
        ({"vm.dirty_ratio": -1}, "is too small; the kernel takes 0 or more"),
        ({"vm.dirty_bytes": 4096}, "is too small; the kernel takes 8192 or more"),
        ({"vm.dirty_ratio": "ten"}, "'ten' is no whole number"),
        ({"vm.dirty_ratio": "10; rm"}, "is no whole number"),
        ({"vm.dirty_ratio": 5, "vm.dirty_bytes": 65536}, "tuning.sysctl.vm.dirty_ratio sets the same limit"),
    ],
)
def test_problems_name_key_and_remedy(sysctl: dict[str, int | str], says: str) -> None:
    _, problems = wanted(sysctl=sysctl)
    assert len(problems) == 1
    assert says in problems[0]


def test_all_problems_are_said_at_once() -> None:
    assert len(wanted(sysctl={"vm.a": 1, "vm.b": 2, "vm.other": 0})[1]) == 3


def step(reading: Reading, spec: TunableSpec = THP, profile: Profile = Profile.MOE_OFFLOAD) -> tuple[StepKind, str]:
    chosen, _ = choose(Tuning(profile=Profile.MOE_OFFLOAD), [spec])
    (found,) = plan(profile, chosen, {spec.name: reading})
    assert found.now == reading.cell
    return found.kind, found.reason


def thp(value: str, choices: tuple[str, ...] = ("always", "madvise", "never"), *, read_only: bool = False) -> Reading:
    return Reading(Cell("/s/thp", value), choices, read_only=read_only)


def test_steps() -> None:
    assert step(thp("always")) == (StepKind.WRITE, "profile moe-offload")
    assert step(thp("never")) == (StepKind.ALREADY, "profile moe-offload")
    assert step(thp("never", read_only=True))[0] is StepKind.ALREADY
    assert step(thp("always", read_only=True)) == (StepKind.SKIPPED, "/s/thp is read-only here (a container?)")
    assert step(thp("always", ("always", "madvise")))[0] is StepKind.SKIPPED
    assert step(Reading(None, unknown="gone")) == (StepKind.SKIPPED, "gone")
    assert step(thp("always"), profile=Profile.OBSERVE)[0] is StepKind.SKIPPED


def test_the_twin_in_force_is_not_the_wanted_ratio() -> None:
    assert step(Reading(Cell("/p/bytes", "10")), RATIO)[0] is StepKind.WRITE
    assert step(Reading(Cell("/p/ratio", "10")), RATIO)[0] is StepKind.ALREADY


def read_ahead(name: str) -> TunableSpec:
    place = Place(f"/b/{name}", Codec.INTEGER)
    return TunableSpec(f"ra {name}", "tuning.read_ahead", place, {}, lowest=4, highest=65536, per_device=True)


def test_a_key_that_each_device_has_counts_for_all_of_them() -> None:
    both = Tuning(profile=Profile.MOE_OFFLOAD, read_ahead=64)
    chosen, problems = choose(both, [read_ahead("a"), read_ahead("b")])
    assert problems == ()
    assert [(item.cell, item.asked_by) for item in chosen] == [
        (Cell("/b/a", "64"), "tuning.read_ahead"),
        (Cell("/b/b", "64"), "tuning.read_ahead"),
    ]
    assert choose(both, []) == ((), ()), "no device is no problem"
    small = Tuning(profile=Profile.MOE_OFFLOAD, read_ahead=2)
    assert len(choose(small, [read_ahead("a"), read_ahead("b")])[1]) == 1, "said once"
