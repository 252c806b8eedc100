from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from moetuned.decide.tuning_plan import choose, plan, within
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.tunable import Bound, Cell, Codec, Place, PlannedStep, Reading, StepKind, TunableSpec, Twin

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


@pytest.mark.parametrize("sysctl", [{"vm.dirty_ratio": 0}, {"vm.dirty_ratio": 100}, {"vm.dirty_bytes": 8192}])
def test_the_kernels_limits_are_taken_themselves(sysctl: dict[str, int]) -> None:
    assert wanted(sysctl=sysctl)[1] == ()


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


def test_a_profile_leaves_the_twin_that_somebody_chose_alone() -> None:
    kind, reason = step(Reading(Cell("/p/bytes", "10")), RATIO)
    assert (kind, reason) == (StepKind.SKIPPED, "vm.dirty_bytes is 10: somebody chose this limit in bytes")
    assert step(Reading(Cell("/p/ratio", "10")), RATIO)[0] is StepKind.ALREADY


def test_the_config_may_replace_the_twin() -> None:
    chosen, _ = choose(Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.dirty_ratio": 10}), [RATIO])
    (found,) = plan(Profile.MOE_OFFLOAD, chosen, {"vm.dirty_ratio": Reading(Cell("/p/bytes", "10"))})
    assert found.kind is StepKind.WRITE


def test_what_is_kept_is_judged_by_what_stood_there_before_moetuned() -> None:
    kept = structs.replace(OTHER, wanted={"moe-offload": "1"}, keep={"2": "2 is strict"})
    chosen, _ = choose(Tuning(profile=Profile.MOE_OFFLOAD), [kept])

    def found(now: str, original: str | None = None) -> PlannedStep:
        before = {} if original is None else {kept.name: Cell("/p/other", original)}
        return plan(Profile.MOE_OFFLOAD, chosen, {kept.name: Reading(Cell("/p/other", now))}, {}, before)[0]

    assert found("2").kind is StepKind.SKIPPED
    assert found("2").reason == "2 is strict; tuning.sysctl.vm.other in the config sets it all the same"
    assert found("1", original="2").kind is StepKind.SKIPPED
    assert found("2", original="0").kind is StepKind.WRITE


def test_what_the_command_line_decides_is_left_to_it_but_not_against_the_config() -> None:
    decided = {"/s/thp": "transparent_hugepage=madvise"}
    readings = {"thp": thp("madvise")}
    for tuning, kind in (
        (Tuning(profile=Profile.MOE_OFFLOAD), StepKind.SKIPPED),
        (Tuning(profile=Profile.MOE_OFFLOAD, thp="never"), StepKind.WRITE),
    ):
        (found,) = plan(Profile.MOE_OFFLOAD, choose(tuning, [THP])[0], readings, decided)
        assert found.kind is kind
        assert ("the kernel command line decides it (transparent_hugepage=madvise)" in found.reason) is (
            kind is StepKind.SKIPPED
        )


def test_a_computed_value_says_where_it_comes_from_and_a_skipped_one_why() -> None:
    computed = structs.replace(THP, because="of the weather")
    assert step(thp("always"), computed) == (StepKind.WRITE, "profile moe-offload: of the weather")
    assert step(thp("always"), structs.replace(THP, skip="no weather")) == (StepKind.SKIPPED, "no weather")


@pytest.mark.parametrize(
    ("value", "now", "kind"),
    [
        ("at-least 100", "99", StepKind.WRITE),
        ("at-least 100", "100", StepKind.ALREADY),
        ("at-least 100", "101", StepKind.ALREADY),
        ("at-most  100", "101", StepKind.WRITE),
        ("at-most 100", "7", StepKind.ALREADY),
        ("at-most 100", "max", StepKind.WRITE),
        ("at-least 100", "max", StepKind.ALREADY),
        (100, "101", StepKind.WRITE),
    ],
)
def test_bounds(value: str | int, now: str, kind: StepKind) -> None:
    chosen, problems = choose(Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.other": value}), [OTHER])
    assert problems == ()
    assert chosen[0].cell == Cell("/p/other", "100")
    (found,) = plan(Profile.MOE_OFFLOAD, chosen, {"vm.other": Reading(Cell("/p/other", now))})
    assert found.kind is kind


@pytest.mark.parametrize("value", ["at-least", "at-least ten", "atleast 5", ">= 5", "at-most 0", "at-least 5 6"])
def test_bounds_that_are_none(value: str) -> None:
    assert len(choose(Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.other": value}), [OTHER])[1]) == 1


def test_keep_takes_a_setting_out() -> None:
    chosen, problems = wanted(thp="keep", sysctl={"vm.dirty_ratio": "keep"})
    assert (chosen, problems) == ({}, ())


def test_what_is_asked_for_one_instance_alone() -> None:
    asked = structs.replace(OTHER, asked="4096", config_key="backends.memory_low")
    (found,), problems = choose(Tuning(profile=Profile.MOE_OFFLOAD), [asked])
    assert (found.cell.value, found.asked_by, found.by_profile, problems) == ("4096", "backends.memory_low", False, ())


@given(
    want=st.integers(-(2**62), 2**62),
    now=st.integers(-(2**62), 2**62),
    bound=st.sampled_from(list(Bound)),
)
def test_within_is_what_the_words_say(want: int, now: int, bound: Bound) -> None:
    means = {Bound.SET: now == want, Bound.AT_LEAST: now >= want, Bound.AT_MOST: now <= want}
    assert within(bound, Cell("/p", str(want)), Cell("/p", str(now))) is means[bound]
    assert not within(bound, Cell("/p", str(want)), Cell("/twin", str(now)))


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


@pytest.mark.parametrize(
    ("sysctl", "says"),
    [
        ({"vm.x": "9" * 40}, "is too large; the kernel takes 2147483647 or less"),
        ({"vm.x": "at-least -5"}, "'at-least -5' is too small; moetuned takes 1024 or more"),
    ],
)
def test_whose_bound_it_is_and_that_a_huge_number_is_one(sysctl: dict[str, int | str], says: str) -> None:
    place = Place("/proc/sys/vm/x", Codec.INTEGER)
    spec = TunableSpec("vm.x", "tuning.sysctl.vm.x", place, {}, lowest=1024, own_lowest=True, highest=2**31 - 1)
    (problem,) = choose(Tuning(profile=Profile.MOE_OFFLOAD, sysctl=sysctl), [spec])[1]
    assert says in problem
