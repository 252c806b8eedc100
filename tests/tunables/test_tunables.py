"""What every tunable must have, and how they are found."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from fakes.fake_kernel import add_disk, usual_kernel

from moetuned import tunables
from moetuned.decide.tuning_plan import choose
from moetuned.parse.config_text import load
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.tunable import Bound, Cell, Codec, ModelTarget, StepKind, Targets, TunableSpec

NAMES = tunables.module_names()


@pytest.mark.parametrize("name", NAMES)
def test_every_tunable_has_a_manual_entry_and_a_sound_spec(name: str) -> None:
    tunable = tunables.load(name)
    spec, manual = tunable.spec, tunable.manual
    assert all([manual.summary, manual.why, manual.risk, manual.source, manual.not_when]), (
        "docstring: sentence, Why:, Risk:, Source:, Not when:"
    )
    assert bool(manual.side_effect) >= bool(spec.side_effects), "docstring: Side effect:"
    assert spec.name.replace(".", "_").replace("-", "_") == name
    assert spec.config_key.startswith(("tuning.", "backends."))
    assert spec.place.path.startswith(("/proc/sys/", "/sys/"))
    assert (spec.twin is None) == (spec.place.twin_path is None)
    assert bool(spec.choices) == (spec.place.codec is Codec.CHOICE)
    known = {profile.value for profile in Profile}
    assert set(spec.wanted) in (set(), known - {"observe"}), "both profiles share them, or none has a wish"
    for profile in spec.wanted:
        value = spec.wanted[profile]
        overlay = {"thp": value} if spec.config_key == "tuning.thp" else {"sysctl": {spec.name: value}}
        assert choose(Tuning(profile=Profile(profile), **overlay), [spec])[1] == (), "the kernel takes what it wants"  # type: ignore[arg-type]
    if spec.wanted and hasattr(importlib.import_module(f"moetuned.tunables.{name}"), "instances"):
        assert manual.computed, "docstring: Computed:"
    if not spec.wanted and not spec.per_device:
        assert "the profiles" in manual.why.lower(), "the manual says why no profile sets it"
    if spec.per_device:
        assert spec.place.path.count("*") == 1
        assert spec.name == name, "instances are found beside it by its name"
        assert tunables.instances(usual_kernel(), tunable, Targets()) == ()
    else:
        assert spec.place.path in usual_kernel().files, "the fake kernel knows it"
        (here,) = tunables.instances(usual_kernel(), tunable, Targets())
        assert (here.name, here.place) == (spec.name, spec.place)


@pytest.mark.parametrize("name", [name for name in NAMES if tunables.load(name).spec.config_key.startswith("tuning.")])
def test_every_tunable_can_be_left_alone_and_asked_for(name: str) -> None:
    """Also those that no profile has a wish for, with at-least and at-most where it is a number."""
    spec = tunables.load(name).spec
    if spec.place.codec is Codec.CHOICE:
        asked: list[tuple[int | str, Bound]] = [(choice, Bound.SET) for choice in spec.choices]
    else:
        number = spec.highest if spec.useful_highest is None else spec.useful_highest
        asked = [(number or 0, Bound.SET), (f"at-least {number}", Bound.AT_LEAST), (f"at-most {number}", Bound.AT_MOST)]
    for value, bound in asked:
        (wanted,), problems = choose(_asking(spec, value), [spec])
        assert (wanted.bound, problems) == (bound, ())
    assert choose(_asking(spec, "keep"), [spec]) == ((), ())


def _asking(spec: TunableSpec, value: int | str) -> Tuning:
    if spec.config_key.startswith("tuning.sysctl."):
        return Tuning(profile=Profile.MOE_OFFLOAD, sysctl={spec.name: value})
    return Tuning(profile=Profile.MOE_OFFLOAD, **{spec.config_key.removeprefix("tuning."): value})  # type: ignore[arg-type]


def test_the_first_set() -> None:
    wanted, problems = choose(
        Tuning(profile=Profile.MOE_OFFLOAD),
        [tunable.spec for tunable in tunables.for_tuning(Tuning(profile=Profile.MOE_OFFLOAD))],
    )
    assert problems == ()
    assert {item.spec.name: item.cell.value for item in wanted} == {
        "transparent_hugepage": "never",
        "vm.dirty_background_ratio": "5",
        "vm.dirty_ratio": "10",
        "vm.overcommit_memory": "1",
        "vm.page-cluster": "0",
        "vm.swappiness": "60",
        "vm.vfs_cache_pressure": "50",
    }


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("vm.dirty_ratio", "vm.dirty_ratio"),
        ("vm_dirty_ratio", "vm.dirty_ratio"),
        ("vm.dirty_bytes", "vm.dirty_ratio"),
        ("tuning.sysctl.vm.dirty_bytes", "vm.dirty_ratio"),
        ("tuning.sysctl.vm.dirty_ratio", "vm.dirty_ratio"),
        ("thp", "transparent_hugepage"),
        ("transparent_hugepage", "transparent_hugepage"),
        ("vm.page-cluster", "vm.page-cluster"),
        ("vm_page_cluster", "vm.page-cluster"),
        ("tuning.sysctl.vm.page-cluster", "vm.page-cluster"),
        ("thp_defrag", "transparent_hugepage_defrag"),
        ("scheduler nvme0n1", "scheduler"),
        ("nr_requests", "nr_requests"),
        ("backends.memory_low", "memory_low"),
        ("memory_low system.slice/llama.service", "memory_low"),
        ("backends.memory_min", "memory_min"),
        ("memory_min system.slice/llama.service", "memory_min"),
        ("read_ahead", "read_ahead_kb"),
        ("tuning.read_ahead", "read_ahead_kb"),
        ("read_ahead_kb", "read_ahead_kb"),
        ("read_ahead_kb vda", "read_ahead_kb"),
    ],
)
def test_found_by_every_name_people_use(key: str, name: str) -> None:
    found = tunables.find(key)
    assert found is not None
    assert found.spec.name == name


@pytest.mark.parametrize("key", ["", "vm.swappiness_", "os", "..fs", "__init__", "vm.dirty_ratio vda", "read_ahead_"])
def test_nothing_else_is_found_or_imported(key: str) -> None:
    assert tunables.find(key) is None


def test_observe_imports_no_tunable_and_an_overlay_only_its_own() -> None:
    program = (
        "import sys\nfrom moetuned import tunables\nfrom moetuned.schema.config import Tuning\n"
        "def loaded(): return sorted(n for n in sys.modules if n.startswith('moetuned.tunables.'))\n"
        "tunables.for_tuning(Tuning()); assert loaded() == [], loaded()\n"
        "tunables.for_tuning(Tuning(sysctl={'vm.dirty_ratio': 10})); assert loaded() == ['moetuned.tunables.vm_dirty_ratio'], loaded()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_observe_changes_nothing_and_says_so() -> None:
    steps, problems = tunables.plan_tuning(usual_kernel(), Tuning(thp="never", sysctl={"vm.dirty_bytes": 65536}))
    assert problems == ()
    assert {step.kind for step in steps} == {StepKind.SKIPPED}
    assert all("observe changes nothing" in step.reason for step in steps)


def test_known_sysctls_hold_both_of_a_pair_and_no_thp() -> None:
    assert {"vm.dirty_ratio", "vm.dirty_bytes"} <= tunables.known_sysctls()
    assert all(name.startswith("vm.") for name in tunables.known_sysctls())


def test_a_docstring_without_paragraphs_has_only_a_summary() -> None:
    manual = tunables.parse_manual("One.\n\nWhy: because\n  of it.\n\nAnother.")
    assert (manual.summary, manual.why, manual.source) == ("One.", "because of it.", "")


@pytest.mark.parametrize(
    ("values", "nothing"),
    [({}, True), ({"thp": "never"}, False), ({"read_ahead": 128}, False), ({"sysctl": {"vm.dirty_ratio": 5}}, False),
     ({"profile": Profile.MOE_OFFLOAD}, False)],
)  # fmt: skip
def test_what_changes_nothing(values: dict[str, object], nothing: bool) -> None:
    tuning = Tuning(**values)  # type: ignore[arg-type]
    assert tunables.changes_nothing(tuning) is nothing
    assert (tunables.for_tuning(tuning) == ()) is nothing


def test_problems_are_known_without_a_look_at_the_machine() -> None:
    tuning = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.dirty_ratio": 400}, read_ahead=128)
    (problem,) = tunables.check_tuning(Config(tuning=tuning))
    assert (problem.path, problem.severity) == ("tuning.sysctl.vm.dirty_ratio", "error")
    assert problem.hint.startswith("400 is too large")
    assert tunables.plan_tuning(usual_kernel(), tuning)[1] == (str(problem),)


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize(
    ("sysctl", "severity", "hint"),
    [
        ({"vm.dirty_ratio": "x"}, "error", "'x' is no whole number"),
        ({"vm.vfs_cache_pressure": -1}, "error", "-1 is too small; the kernel takes 0 or more"),
        ({"vm.vfs_cache_pressure": 2**31}, "error", "is too large"),
        ({"vm.vfs_cache_pressure": 99999999}, "warning", "the kernel takes it, but more than 1000 is of no use"),
        ({"vm.dirty_ratio": 5, "vm.dirty_bytes": 8192}, "error", "keep one of the two"),
        ({"vm.overcommit_memory": 2}, "warning", "may be refused memory although most of RAM only holds page cache"),
        ({"vm.min_free_kbytes": "at-least 99999999"}, "warning", "more than 2097152 is of no use"),
    ],
)
def test_values_that_the_kernel_refuses_or_nobody_means(
    profile: Profile, sysctl: dict[str, int | str], severity: str, hint: str
) -> None:
    (problem,) = tunables.check_tuning(Config(tuning=Tuning(profile=profile, sysctl=sysctl)))
    assert problem.severity == severity
    assert hint in problem.hint
    assert problem.path in {f"tuning.sysctl.{key}" for key in sysctl}


def test_good_values_and_keys_that_are_said_elsewhere_are_no_problem() -> None:
    tuning = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"kernel.x": 1, "vm.vfs_cache_pressure": 1000}, thp="never")
    assert list(tunables.check_tuning(Config(tuning=tuning))) == []
    assert list(tunables.check_tuning(Config())) == []


@pytest.mark.parametrize(("value", "said"), [(0, 0), (1000, 1)])
def test_the_kernel_that_kills_is_warned_of(value: int, said: int) -> None:
    found = list(tunables.check_tuning(Config(tuning=Tuning(lru_gen_min_ttl_ms=value))))
    assert [(problem.path, problem.severity) for problem in found] == [("tuning.lru_gen_min_ttl_ms", "warning")] * said


def test_at_most_is_never_too_much() -> None:
    tuning = Tuning(sysctl={"vm.vfs_cache_pressure": "at-most 99999999"})
    assert list(tunables.check_tuning(Config(tuning=tuning))) == []


def test_what_thp_changes_besides_is_in_its_manual_entry() -> None:
    assert "vm.min_free_kbytes" in tunables.load("transparent_hugepage").manual.side_effect
    assert tunables.load("vm_dirty_ratio").manual.side_effect == ""


def test_the_kernels_own_order_of_things() -> None:
    """A setting that changes others goes first, so that one of those that is wanted too has the last word."""
    kernel = usual_kernel()
    add_disk(kernel, "sda", "8:0", 128, "/models")
    wanted = Tuning(
        profile=Profile.MOE_OFFLOAD, scheduler="bfq", nr_requests=64, sysctl={"vm.min_free_kbytes": "at-least 30000"}
    )
    steps, _ = tunables.plan_tuning(kernel, wanted, Targets((ModelTarget("/models/a.gguf"),)), lambda _: (8, 0))
    names = [step.wanted.spec.name for step in steps]
    assert names[:2] == ["scheduler sda", "transparent_hugepage"]
    assert names[2:] == sorted(names[2:])
    assert {"nr_requests sda", "vm.min_free_kbytes"} <= set(names[2:])


def test_a_page_cluster_is_a_sysctl_with_a_hyphen() -> None:
    assert "vm.page-cluster" in tunables.known_sysctls()
    text = "tuning: {profile: moe-offload, sysctl: {vm.page-cluster: at-most 1}}\n"
    config = load([("moetuned.yaml", text)], tunables.known_sysctls())
    steps, problems = tunables.plan_tuning(usual_kernel(), config.tuning)
    assert problems == ()
    (step,) = [step for step in steps if step.wanted.spec.name == "vm.page-cluster"]
    assert (step.kind, step.wanted.bound, step.wanted.cell) == (
        StepKind.WRITE,
        Bound.AT_MOST,
        Cell("/proc/sys/vm/page-cluster", "1"),
    )
    assert tunables.manual_of(step.wanted.spec) == tunables.load("vm_page_cluster").manual


@pytest.mark.parametrize(
    ("sysctl", "key"),
    [
        ({"vm.dirty_background_ratio": 20}, "tuning.sysctl.vm.dirty_background_ratio"),
        ({"vm.dirty_background_ratio": 30, "vm.dirty_ratio": 30}, "tuning.sysctl.vm.dirty_background_ratio"),
        ({"vm.dirty_ratio": 5}, "tuning.sysctl.vm.dirty_ratio"),
        ({"vm.dirty_background_bytes": 2 << 20, "vm.dirty_bytes": 1 << 20}, "tuning.sysctl.vm.dirty_background_bytes"),
        ({"vm.dirty_background_ratio": 5, "vm.dirty_ratio": 30}, None),
        ({"vm.dirty_background_bytes": 2 << 20, "vm.dirty_ratio": 30}, None),
        ({}, None),
    ],
)
def test_a_background_limit_that_is_none_is_a_warning(sysctl: dict[str, int | str], key: str | None) -> None:
    tuning = Tuning(profile=Profile.MOE_OFFLOAD, sysctl=sysctl)
    found = [problem for problem in tunables.check_tuning(Config(tuning=tuning)) if "background limit" in problem.hint]
    assert [(problem.path, problem.severity) for problem in found] == ([] if key is None else [(key, "warning")])
