"""Read-ahead of the models' file systems: found by device, applied, checked and given back; on a fake kernel and on a real loop device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, Text, add_disk, usual_kernel

from moetuned import tunables
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Bound, Cell, ModelTarget, PlannedStep, StepKind, Targets
from moetuned.state import tuning
from moetuned.state.undo_journal import UndoJournal, open_journal

MODEL, OTHER_MODEL = "/models/a.gguf", "/fast/b.gguf"
SLICE_BYTES = 432 << 10
PROFILE = Tuning(profile=Profile.MOE_OFFLOAD)
SMALL = Tuning(profile=Profile.MOE_OFFLOAD, read_ahead=128)
NUMBERS = {MODEL: (254, 0), "/models/c.gguf": (254, 0), OTHER_MODEL: (259, 0), "/net/d.gguf": (0, 30)}
VDA = "/sys/devices/virtual/bdi/254:0/read_ahead_kb"


def device_of(path: str) -> tuple[int, int]:
    if path not in NUMBERS:
        raise FileNotFoundError(2, "No such file or directory", path)
    return NUMBERS[path]


@pytest.fixture
def kernel() -> FakeKernel:
    made = usual_kernel()
    assert add_disk(made, "vda", "254:0", 8192, "/models") == VDA
    add_disk(made, "nvme0n1", "259:0", 128, "/fast")
    table = made.files["/proc/self/mountinfo"].read()
    made.files["/proc/self/mountinfo"] = Text(table + "1 1 0:30 / /net rw - nfs4 server:/x rw\n")
    return made


def target(model: str | ModelTarget) -> ModelTarget:
    return ModelTarget(model, SLICE_BYTES) if isinstance(model, str) else model


def steps_of(
    kernel: FakeKernel, models: tuple[str | ModelTarget, ...], wanted: Tuning = SMALL
) -> dict[str, PlannedStep]:
    steps, problems = tunables.plan_tuning(kernel, wanted, Targets(tuple(map(target, models))), device_of)
    assert problems == ()
    found = {step.wanted.spec.name: step for step in steps if step.wanted.spec.config_key == "tuning.read_ahead"}
    return {name.removeprefix("read_ahead_kb "): step for name, step in found.items()}


def apply(
    kernel: FakeKernel, journal: UndoJournal, models: tuple[str | ModelTarget, ...] = (MODEL,), wanted: Tuning = SMALL
) -> TunableView:
    steps = tuple(steps_of(kernel, models, wanted).values())
    return next(view for view in tuning.apply(kernel, journal, steps) if view.name == "read_ahead_kb vda")


def test_one_setting_a_device_whatever_the_number_of_models(kernel: FakeKernel) -> None:
    steps = steps_of(kernel, (MODEL, "/models/c.gguf", OTHER_MODEL))
    assert {name: (step.kind, step.now and step.now.value, step.reason) for name, step in steps.items()} == {
        "vda": (StepKind.WRITE, "8192", "tuning.read_ahead"),
        "nvme0n1": (StepKind.ALREADY, "128", "tuning.read_ahead"),
    }
    assert steps["vda"].wanted.cell == Cell("/sys/block/vda/bdi/read_ahead_kb", "128")


@pytest.mark.parametrize("profile", [Profile.MOE_OFFLOAD, Profile.MOE_OFFLOAD_ZRAM])
def test_a_profile_sets_what_the_slices_ask_for(kernel: FakeKernel, profile: Profile) -> None:
    step = steps_of(kernel, (MODEL,), Tuning(profile=profile))["vda"]
    assert (step.kind, step.wanted.cell.value) == (StepKind.WRITE, "64")
    assert step.reason.startswith(f"profile {profile.value}: slices of 432 KiB")


def test_an_nvme_disk_gets_more(kernel: FakeKernel) -> None:
    step = steps_of(kernel, (OTHER_MODEL,), PROFILE)["nvme0n1"]
    assert (step.kind, step.wanted.cell.value) == (StepKind.ALREADY, "128")


def test_observe_does_not_ask_for_it(kernel: FakeKernel) -> None:
    assert steps_of(kernel, (MODEL,), Tuning()) == {}


def test_of_several_models_on_one_bdi_the_smallest_slice_counts(kernel: FakeKernel) -> None:
    models = (MODEL, ModelTarget("/models/c.gguf", 8 << 20), ModelTarget(OTHER_MODEL, 8 << 20))
    steps = steps_of(kernel, models, PROFILE)
    assert {name: step.wanted.cell.value for name, step in steps.items()} == {"vda": "64", "nvme0n1": "512"}


def test_a_model_without_experts_leaves_it_to_the_others(kernel: FakeKernel) -> None:
    dense = ModelTarget("/models/c.gguf", unknown="/models/c.gguf has no experts")
    assert steps_of(kernel, (dense, MODEL), PROFILE)["vda"].wanted.cell.value == "64"
    step = steps_of(kernel, (dense,), PROFILE)["vda"]
    assert (step.kind, step.reason) == (StepKind.SKIPPED, "/models/c.gguf has no experts")


@pytest.mark.parametrize(
    ("present", "kind"),
    [
        (8192, StepKind.WRITE), (68, StepKind.WRITE), (64, StepKind.ALREADY), (60, StepKind.SKIPPED),
        (32, StepKind.SKIPPED), (28, StepKind.WRITE), (16, StepKind.WRITE), (4, StepKind.WRITE), (0, StepKind.WRITE),
    ],
)  # fmt: skip
def test_a_profile_lowers_it_and_raises_only_what_is_far_too_small(
    kernel: FakeKernel, present: int, kind: StepKind
) -> None:
    kernel.foreign_write(VDA, str(present))
    step = steps_of(kernel, (MODEL,), PROFILE)["vda"]
    assert (step.kind, step.wanted.cell.value) == (kind, "64")
    assert (kind is StepKind.SKIPPED) == ("smaller than the 64 KiB computed" in step.reason)


def test_what_was_raised_stays_as_planned(kernel: FakeKernel, tmp_path: Path) -> None:
    kernel.foreign_write(VDA, "4")
    with open_journal(str(tmp_path / "state/undo.jsonl"), BOOT_ID) as journal:
        assert (apply(kernel, journal, wanted=PROFILE).now, kernel.foreign_read(VDA)) == ("64", "64\n")
        again = apply(kernel, journal, wanted=PROFILE)
        assert (again.state, again.original) == ("applied", "4")
        assert tuning.rollback(kernel, journal)[0].now == "4"


def test_a_value_of_the_config_wins_whatever_stands_there(kernel: FakeKernel) -> None:
    kernel.foreign_write(VDA, "64")
    step = steps_of(kernel, (MODEL,), SMALL)["vda"]
    assert (step.kind, step.wanted.cell.value, step.wanted.bound) == (StepKind.WRITE, "128", Bound.SET)
    assert steps_of(kernel, (MODEL,), Tuning(profile=Profile.MOE_OFFLOAD, read_ahead="keep")) == {}


def test_a_disk_that_turns_is_left_alone_unless_the_config_asks(kernel: FakeKernel) -> None:
    kernel.files["/sys/devices/pci0000:00/block/nvme0n1/queue/rotational"] = Text("1\n")
    step = steps_of(kernel, (OTHER_MODEL,), PROFILE)["nvme0n1"]
    assert step.kind is StepKind.SKIPPED
    assert "the disk turns" in step.reason
    asked = steps_of(kernel, (OTHER_MODEL,), Tuning(profile=Profile.MOE_OFFLOAD, read_ahead=256))["nvme0n1"]
    assert (asked.kind, asked.wanted.cell.value) == (StepKind.WRITE, "256")


@pytest.mark.parametrize(("name", "vendor"), [("vda", None), ("sda", "QEMU    \n"), ("sda", "VMware  \n")])
def test_a_virtual_disk_that_says_it_turns_is_not_believed(kernel: FakeKernel, name: str, vendor: str | None) -> None:
    if name != "vda":
        add_disk(kernel, name, "8:0", 8192, "/sata")
    disk = f"/sys/devices/pci0000:00/block/{name}"
    kernel.files[f"{disk}/queue/rotational"] = Text("1\n")
    if vendor is not None:
        kernel.files[f"{disk}/device/vendor"] = Text(vendor)
    numbers = NUMBERS | {"/sata/e.gguf": (8, 0)}
    model = MODEL if name == "vda" else "/sata/e.gguf"
    steps, _ = tunables.plan_tuning(kernel, PROFILE, Targets((target(model),)), numbers.__getitem__)
    (step,) = [each for each in steps if each.wanted.spec.name == f"read_ahead_kb {name}"]
    assert (step.kind, step.wanted.cell.value) == (StepKind.WRITE, "64")


def test_a_disk_of_another_vendor_is_believed(kernel: FakeKernel) -> None:
    add_disk(kernel, "sda", "8:0", 8192, "/sata")
    disk = "/sys/devices/pci0000:00/block/sda"
    kernel.files |= {f"{disk}/queue/rotational": Text("1\n"), f"{disk}/device/vendor": Text("ATA     \n")}
    steps, _ = tunables.plan_tuning(kernel, PROFILE, Targets((target("/sata/e.gguf"),)), lambda path: (8, 0))
    assert "the disk turns" in next(step.reason for step in steps if step.wanted.spec.name == "read_ahead_kb sda")


def test_without_a_model_there_is_nothing_to_set(kernel: FakeKernel) -> None:
    assert steps_of(kernel, ()) == {}


def test_observe_skips_it(kernel: FakeKernel) -> None:
    (step,) = steps_of(kernel, (MODEL,), Tuning(read_ahead=128)).values()
    assert (step.kind, "observe changes nothing" in step.reason) == (StepKind.SKIPPED, True)


@pytest.mark.parametrize(
    ("model", "says"),
    [("/net/d.gguf", "network"), ("/models/none.gguf", "No such file or directory")],
)
def test_a_model_without_a_known_device_is_skipped_with_the_reason(kernel: FakeKernel, model: str, says: str) -> None:
    step = steps_of(kernel, (model, MODEL))[model]
    assert (step.kind, step.now) == (StepKind.SKIPPED, None)
    assert says in step.reason


@pytest.mark.parametrize("kind", ["overlay", "zfs"])
def test_file_systems_that_hide_their_disks(kernel: FakeKernel, kind: str) -> None:
    kernel.files["/proc/self/mountinfo"] = Text(f"1 1 0:30 / / rw - {kind} x rw\n")
    step = steps_of(kernel, ("/net/d.gguf",))["/net/d.gguf"]
    assert step.kind is StepKind.SKIPPED
    assert kind in step.reason.lower()


def test_a_device_without_a_bdi_is_skipped(kernel: FakeKernel) -> None:
    del kernel.files[VDA]
    assert "does not say which read-ahead counts for it (ext4 on vda)" in steps_of(kernel, (MODEL,))[MODEL].reason


def test_read_only_sys_is_skipped(kernel: FakeKernel) -> None:
    kernel.mount_read_only("/sys")
    assert "read-only" in steps_of(kernel, (MODEL,))["vda"].reason


def test_applied_verified_and_given_back(kernel: FakeKernel, tmp_path: Path) -> None:
    before = kernel.settings()
    with open_journal(str(tmp_path / "state/undo.jsonl"), BOOT_ID) as journal:
        view = apply(kernel, journal)
        assert (view.state, view.now, view.original) == ("applied", "128", "8192")
        assert "restart backends that were running before" in view.detail
        assert kernel.foreign_read(VDA) == "128\n"
        steps = tuple(steps_of(kernel, (MODEL,)).values())
        assert tuning.verify(kernel, journal.held, steps, [view]) == (view,), "it says so until the next apply"
        assert "restart" not in tuning.verify(kernel, journal.held, steps)[0].detail
        assert "restart" not in apply(kernel, journal).detail, "nothing was changed"
    with open_journal(str(tmp_path / "state/undo.jsonl"), BOOT_ID) as journal:
        (back,) = tuning.rollback(kernel, journal)
        assert (back.state, back.now) == ("restored", "8192")
        assert "restart" in back.detail
    assert kernel.settings() == before
    assert os.listdir(tmp_path / "state") == []


def test_a_reload_changes_it_and_keeps_the_original(kernel: FakeKernel, tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "state/undo.jsonl"), BOOT_ID) as journal:
        apply(kernel, journal)
        view = apply(kernel, journal, wanted=Tuning(profile=Profile.MOE_OFFLOAD, read_ahead=66))
        assert (view.state, view.now, view.original) == ("adjusted", "64", "8192")
        assert "the kernel made 64 of 66; restart backends" in view.detail
        (gone,) = tuning.apply(kernel, journal, ())
        assert (gone.name, gone.state, gone.now) == ("read_ahead_kb vda", "restored", "8192")


def test_somebody_elses_read_ahead_is_left_alone(kernel: FakeKernel, tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "state/undo.jsonl"), BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.foreign_write(VDA, "4096")
        assert apply(kernel, journal).state == "drifted"
        assert tuning.rollback(kernel, journal)[0].state == "drifted"
    assert kernel.foreign_read(VDA) == "4096\n"


# A real device: a loop device of our own, so that no disk of the machine is touched.


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A mounted file system on a loop device: the device's name and a file on it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it sets up a loop device")
    image, point = tmp_path / "disk.img", tmp_path / "mounted"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(4 << 20)
    try:
        run("mkfs.ext2", "-q", "-F", str(image))
        device = run("losetup", "--find", "--show", str(image))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device to be had here: {error}")
    name = device.removeprefix("/dev/")
    setting = Path(f"/sys/block/{name}/bdi/read_ahead_kb")
    before = setting.read_text()
    try:
        run("mount", device, str(point))
        try:
            (point / "model.gguf").write_bytes(b"GGUF")
            yield name, point / "model.gguf"
        finally:
            run("umount", str(point))
    finally:
        setting.write_text(before)
        run("losetup", "--detach", device)


@pytest.mark.kernel
def test_a_real_device(own_disk: tuple[str, Path], tmp_path: Path) -> None:
    name, model = own_disk
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    setting = Path(f"/sys/block/{name}/bdi/read_ahead_kb")
    setting.write_text("8192")
    journal = str(tmp_path / "state/undo.jsonl")
    # Only this setting: the others are the machine's, and other tests look after them.
    program = (
        "import sys; from moetuned import tunables; from moetuned.cli.main import main\n"
        "tunables.module_names = lambda: ('read_ahead_kb',)\nmain()"
    )
    config = tmp_path / "moetuned.yaml"
    config.write_text(
        f"tuning: {{profile: moe-offload, read_ahead: 64}}\nbackends: [{{name: a, model: {link}}}, {{name: b, model: {model}}}]\n"
    )
    config.chmod(0o600)

    def moetunectl(*arguments: str, code: int = 0) -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", program, "tune", *arguments, "--json", "--journal", journal],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        shown = json.loads(done.stdout)
        (view,) = shown if isinstance(shown, list) else shown.get("tuning") or shown["steps"]
        return view

    ours = ("--config", str(config))
    planned = moetunectl("plan", *ours)
    assert (planned["name"], planned["step"], planned["now"]) == (f"read_ahead_kb {name}", "write", "8192")
    assert planned["why"]
    applied = moetunectl("apply", *ours)
    assert (applied["state"], applied["now"], applied["original"]) == ("applied", "64", "8192")
    assert setting.read_text() == Path(f"/sys/block/{name}/queue/read_ahead_kb").read_text() == "64\n"
    assert moetunectl("verify", *ours)["state"] == "applied"
    assert moetunectl("explain", "read_ahead", *ours)["now"] == f"read_ahead_kb {name} 64"
    setting.write_text("256")
    assert moetunectl("verify", *ours, code=1)["state"] == "drifted"
    setting.write_text("64")
    assert moetunectl("rollback")["state"] == "restored"
    assert setting.read_text() == "8192\n"
    assert not os.path.exists(journal)
