from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as property_settings
from hypothesis import strategies as st

from moetuned.decide.persist import (
    OWN_FILES,
    SYSCTL_FILE,
    TMPFILES_FILE,
    UDEV_FILE,
    disks_of,
    plan_persist,
    plan_unpersist,
    preview,
)
from moetuned.parse.persisted_file import Standing, standing, with_header
from moetuned.parse.sysctl_conf import parse_sysctl_conf
from moetuned.parse.tmpfiles_conf import parse_tmpfiles
from moetuned.parse.udev_attributes import parse_udev_rules
from moetuned.schema.persisted import DeviceMatch, FileStep, PersistPlan
from moetuned.schema.rival import Rival
from moetuned.schema.tunable import Bound, Cell, Codec, Place, PlannedStep, StepKind, TunableSpec, Wanted

RATIO, BYTES = "/proc/sys/vm/dirty_ratio", "/proc/sys/vm/dirty_bytes"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
READ_AHEAD = "/sys/block/vda/bdi/read_ahead_kb"
NONE: dict[str, str | None] = dict.fromkeys(OWN_FILES)
VDA = {"vda": DeviceMatch('ATTR{serial}=="S1"', "its serial number")}


def step(
    path: str,
    value: str = "10",
    kind: StepKind = StepKind.WRITE,
    now: str = "20",
    twin: str | None = None,
    cell: str | None = None,
) -> PlannedStep:
    spec = TunableSpec(path.rpartition("/")[2], "tuning.x", Place(path, Codec.INTEGER, twin_path=twin), {})
    return PlannedStep(Wanted(spec, Cell(cell or path, value), "profile"), kind, Cell(path, now), "why not")


def text(plan: PersistPlan, path: str) -> str:
    return next(change.after or "" for change in plan.changes if change.path == path)


def body(plan: PersistPlan, path: str) -> list[str]:
    return text(plan, path).splitlines()[2:]


def written(plan: PersistPlan) -> dict[str, str | None]:
    """The files of ours as they are after the plan was carried out."""
    return NONE | {change.path: change.after for change in plan.changes}


def test_each_setting_goes_to_the_file_that_can_keep_it() -> None:
    plan = plan_persist([step(RATIO), step(THP, "never"), step(READ_AHEAD, "128")], VDA, NONE)
    assert body(plan, SYSCTL_FILE) == ["vm.dirty_ratio = 10"]
    assert body(plan, TMPFILES_FILE) == [f"w! {THP} - - - - never"]
    assert body(plan, UDEV_FILE) == [
        "# vda, by its serial number",
        'ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTR{serial}=="S1", ATTR{bdi/read_ahead_kb}="128"',
    ]
    assert (plan.left_out, plan.warnings) == ((), ())


def test_what_is_written_reads_back_as_it_was_meant() -> None:
    plan = plan_persist([step(RATIO), step(THP, "never"), step(READ_AHEAD, "128")], VDA, NONE)
    (sysctl,) = parse_sysctl_conf(text(plan, SYSCTL_FILE), "f")
    (line,) = parse_tmpfiles(text(plan, TMPFILES_FILE), "f")
    (rule,) = parse_udev_rules(text(plan, UDEV_FILE), "f")
    assert ("/proc/sys/" + sysctl.key, sysctl.value) == (RATIO, "10")
    assert (line.path, line.value, line.only_at_boot) == (THP, "never", True)
    assert (rule.paths, rule.value) == (("/sys/block/*/bdi/read_ahead_kb",), "128")


def test_a_scheduler_comes_before_the_requests_that_it_resets() -> None:
    queue = "/sys/block/vda/queue"
    plan = plan_persist([step(READ_AHEAD), step(f"{queue}/nr_requests"), step(f"{queue}/scheduler", "none")], VDA, NONE)
    ends = [line.rsplit(", ", 1)[1] for line in body(plan, UDEV_FILE)[1:]]
    assert ends == ['ATTR{queue/scheduler}="none"', 'ATTR{queue/nr_requests}="10"', 'ATTR{bdi/read_ahead_kb}="10"']
    assert disks_of([step(READ_AHEAD), step(f"{queue}/scheduler"), step(RATIO)]) == ("vda",)


def test_a_value_within_its_bound_is_kept_as_it_stands() -> None:
    plan = plan_persist([step(RATIO, "10", StepKind.ALREADY, now="7")], {}, NONE)
    assert body(plan, SYSCTL_FILE) == ["vm.dirty_ratio = 7"]


def test_the_twin_of_a_pair_is_kept_under_its_own_name() -> None:
    plan = plan_persist([step(RATIO, "4096", twin=BYTES, cell=BYTES)], {}, NONE)
    assert body(plan, SYSCTL_FILE) == ["vm.dirty_bytes = 4096"]


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (step("/proc/sys/vm/a", kind=StepKind.SKIPPED), "why not"),
        (step("/sys/class/bdi/btrfs-1/read_ahead_kb"), "btrfs"),
        (step("/sys/fs/cgroup/x/memory.low"), "only while it runs"),
        (step("/sys/block/sdb/bdi/read_ahead_kb"), "sdb"),
        (step("/sys/block/loop0/bdi/read_ahead_kb"), "loop devices come and go"),
        (step("/proc/sys/vm/a b"), "cannot be written"),
        (step("/proc/sys/vm/a", "1\nvm.b = 2"), "cannot be written"),
        (step("/proc/sys/vm/a", '%m"'), "cannot be written"),
    ],
)
def test_what_no_file_can_keep_is_said(left: PlannedStep, why: str) -> None:
    disks = VDA | {"loop0": "loop devices come and go"}
    plan = plan_persist([step(RATIO), left], disks, NONE)
    assert [change.path for change in plan.changes] == [SYSCTL_FILE]
    (said,) = plan.left_out
    assert why in said.reason
    assert plan_persist([left], disks, NONE) == PersistPlan(left_out=(said,))


def test_persist_again_changes_nothing_and_takes_away_what_is_no_longer_wanted() -> None:
    first = written(plan_persist([step(RATIO), step(THP, "never")], {}, NONE))
    again = plan_persist([step(RATIO), step(THP, "never")], {}, first)
    assert [change.step for change in again.changes] == [FileStep.UNCHANGED] * 2
    less = plan_persist([step(RATIO, "11")], {}, first)
    assert [(change.path, change.step) for change in less.changes] == [
        (SYSCTL_FILE, FileStep.WRITE),
        (TMPFILES_FILE, FileStep.REMOVE),
    ]


@pytest.mark.parametrize(("theirs", "said"), [("edit", "was edited"), ("foreign", "was not written by moetuned")])
def test_a_file_that_is_not_as_we_wrote_it_is_refused(theirs: str, said: str) -> None:
    found = with_header("vm.dirty_ratio = 10\n") + "vm.swappiness = 1\n" if theirs == "edit" else "vm.swappiness = 1\n"
    for plan in (
        plan_persist([step(RATIO)], {}, NONE | {SYSCTL_FILE: found}),
        plan_unpersist(NONE | {SYSCTL_FILE: found}),
    ):
        (change,) = plan.changes
        assert change.step is FileStep.REFUSED
        assert said in change.reason
        assert change.after == found
        assert preview(change) == ""


def test_unpersist_takes_away_what_is_ours() -> None:
    files = written(plan_persist([step(RATIO), step(THP, "never")], {}, NONE))
    plan = plan_unpersist(files)
    assert [(change.path, change.step) for change in plan.changes] == [
        (SYSCTL_FILE, FileStep.REMOVE),
        (TMPFILES_FILE, FileStep.REMOVE),
    ]
    assert written(plan) == NONE
    assert plan_unpersist(NONE) == PersistPlan()


def test_the_preview_is_a_diff() -> None:
    first = plan_persist([step(RATIO)], {}, NONE)
    assert "+vm.dirty_ratio = 10" in preview(first.changes[0])
    assert preview(first.changes[0]).startswith("--- /dev/null\n+++ /etc/sysctl.d/90-moetuned.conf\n")
    second = plan_persist([step(RATIO, "11")], {}, written(first))
    lines = preview(second.changes[0]).splitlines()
    assert {"-vm.dirty_ratio = 10", "+vm.dirty_ratio = 11"} <= set(lines)
    assert "-vm.dirty_ratio = 10" in preview(plan_unpersist(written(first)).changes[0])


def rival(
    file: str, path: str = RATIO, value: str | None = "40", when: str = "at boot", gives_way: bool = False
) -> Rival:
    return Rival(f"{file} line 1", path, value, when, file=file, gives_way=gives_way)


@pytest.mark.parametrize(
    ("theirs", "warns"),
    [
        (rival("/etc/sysctl.d/99-x.conf"), True),
        (rival("/usr/lib/sysctl.d/99-x.conf"), True),
        (rival("/etc/sysctl.d/99-x.conf", value="10"), False),
        (rival("/etc/sysctl.d/50-x.conf"), False),
        (rival("/etc/sysctl.d/99-x.conf", BYTES, "4096"), True),
        (rival("/etc/sysctl.d/99-x.conf", BYTES, "0"), False),
        (rival("/etc/sysctl.d/99-x.conf", "/proc/sys/vm/swappiness"), False),
        (rival("/etc/sysctl.conf"), True),
        (rival("/proc/cmdline"), False),
        (rival("/usr/lib/tuned/x/tuned.conf"), True),
        (rival("/usr/lib/tuned/x/tuned.conf", gives_way=True), False),
        (rival("/etc/udev/rules.d/10-x.rules"), True),
    ],
)
def test_who_has_the_last_word_over_a_sysctl(theirs: Rival, warns: bool) -> None:
    plan = plan_persist([step(RATIO, twin=BYTES)], {}, NONE, [theirs])
    assert len(plan.warnings) == warns
    assert all(theirs.what in warning and SYSCTL_FILE in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("theirs", "warns"),
    [
        # of two lines for one path the earlier file counts
        (rival("/etc/tmpfiles.d/a.conf", THP, "always"), True),
        (rival("/etc/tmpfiles.d/z.conf", THP, "always"), False),
        (rival("/etc/tmpfiles.d/z.conf", THP, "always", "at boot and when systemd-tmpfiles --create runs"), True),
        (rival("/etc/tmpfiles.d/z.conf", "/sys/kernel/mm/*/enabled", "always"), True),
        (rival("/etc/tmpfiles.d/a.conf", "/sys/kernel/mm/*/enabled", "always"), False),
    ],
)
def test_who_has_the_last_word_over_huge_pages(theirs: Rival, warns: bool) -> None:
    assert len(plan_persist([step(THP, "never")], {}, NONE, [theirs]).warnings) == warns


@pytest.mark.parametrize(("file", "warns"), [("99-x.rules", True), ("60-x.rules", False)])
def test_who_has_the_last_word_over_a_disk(file: str, warns: bool) -> None:
    theirs = rival(f"/usr/lib/udev/rules.d/{file}", "/sys/block/*/queue/read_ahead_kb", "4096")
    assert len(plan_persist([step(READ_AHEAD, "128")], VDA, NONE, [theirs]).warnings) == warns


def test_a_file_that_nothing_reads_is_warned_of_if_it_is_written() -> None:
    (warning,) = plan_persist([step(THP, "never")], {}, NONE, (), [TMPFILES_FILE, UDEV_FILE]).warnings
    assert warning.startswith(f"{TMPFILES_FILE} has no effect")
    assert "/usr/bin/systemd-tmpfiles" in warning


def test_a_setting_of_a_unit_names_the_command_that_keeps_it() -> None:
    left = step("/sys/fs/cgroup/x/memory.low", "1024")
    place = Place("/sys/fs/cgroup/x/memory.low", Codec.LIMIT, unit="llama.service", unit_property="MemoryLow")
    spec = msgspec.structs.replace(left.wanted.spec, place=place)
    left = msgspec.structs.replace(left, wanted=msgspec.structs.replace(left.wanted, spec=spec))
    (said,) = plan_persist([left], {}, NONE).left_out
    assert said.reason.endswith("systemctl set-property llama.service MemoryLow=1024")


def test_a_tuner_that_only_raises_is_no_trouble_above_its_value() -> None:
    theirs = Rival("tuned", "/sys/block/*/queue/read_ahead_kb", "4096", "at boot", file="/t", bound=Bound.AT_LEAST)
    assert len(plan_persist([step(READ_AHEAD, "128")], VDA, NONE, [theirs]).warnings) == 1
    assert plan_persist([step(READ_AHEAD, "8192")], VDA, NONE, [theirs]).warnings == ()


PATHS = st.sampled_from([RATIO, BYTES, THP, READ_AHEAD, "/sys/class/bdi/btrfs-1/read_ahead_kb", "/x"])
STEPS = st.lists(st.builds(step, PATHS, st.text(max_size=4) | st.just("7"), st.sampled_from(StepKind)), max_size=6)


@property_settings(deadline=None)
@given(STEPS, STEPS)
def test_persist_after_persist_after_unpersist_leaves_only_files_of_ours(
    first: list[PlannedStep], second: list[PlannedStep]
) -> None:
    files = written(plan_persist(first, VDA, NONE))
    plan = plan_persist(second, VDA, files)
    after = files | {change.path: change.after for change in plan.changes}
    assert all(standing(found) is Standing.OURS for found in after.values() if found is not None)
    assert all(change.step is not FileStep.REFUSED for change in plan.changes)
    assert after | {change.path: change.after for change in plan_unpersist(after).changes} == NONE
    for found in after.values():
        assert found is None or all(line.isprintable() for line in found.splitlines())
