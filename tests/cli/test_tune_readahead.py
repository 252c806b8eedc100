"""`moetunectl tune readahead`: what it refuses, how it reads its options, and the whole of it on a loop device of its own."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes.gguf_bytes import TensorSpec, gguf_bytes, moe_metadata, moe_tensors, write_parts

from moetuned.cli import tune_readahead
from moetuned.cli.tune_readahead import readahead
from moetuned.decide.read_ahead import Point, is_noisy
from moetuned.host.block_devices import FileDevices
from moetuned.host.fs import RealFS
from moetuned.host.model_files import read_model
from moetuned.host.read_ahead_measure import Round
from moetuned.schema.tunable import Cell, Codec, Place, StepKind
from moetuned.state import tuning
from moetuned.state.borrowed_setting import open_borrowed
from moetuned.state.undo_journal import Held, open_journal, read_boot_id

VDA = "/sys/block/vda/bdi/read_ahead_kb"


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(readahead, list(arguments), catch_exceptions=False)
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs on the machine: that a measurement is too noisy is no answer here."""
    monkeypatch.setattr(tune_readahead, "is_noisy", lambda _curve: False)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused before anything of root is done."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(layers=2, experts=8), moe_tensors(layers=2, experts=8)))
    return path


def refused(model: Path, *more: str, code: int) -> str:
    return run(str(model), "--journal", str(model.parent / "state/undo.jsonl"), *more, code=code).stderr


def test_without_root(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo" in refused(model, code=4)


@pytest.mark.usefixtures("as_root")
def test_another_root_cannot_be_measured(model: Path, tmp_path: Path) -> None:
    assert "only be measured on the machine itself" in refused(model, "--root", str(tmp_path), code=2)


@pytest.mark.usefixtures("as_root")
def test_no_model(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.gguf", code=2)


@pytest.mark.usefixtures("as_root")
def test_a_dense_model(tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    path.write_bytes(
        gguf_bytes({"general.architecture": "llama", "llama.block_count": 1}, [TensorSpec("output.weight", (32, 32))])
    )
    assert "has no experts" in refused(path, code=2)


@pytest.mark.usefixtures("as_root")
def test_a_model_of_few_slices(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(layers=1, experts=2), moe_tensors(layers=1, experts=2)))
    assert "too few to measure with" in refused(path, code=2)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    ("devices", "says"),
    [
        (FileDevices(unknown="it is on ZFS, which does not show its disks to the kernel"), "ZFS"),
        (FileDevices(names=("vda",), filesystem="btrfs"), "does not say which read-ahead counts for it (btrfs)"),
    ],
)
def test_a_file_system_without_a_known_bdi(
    model: Path, monkeypatch: pytest.MonkeyPatch, devices: FileDevices, says: str
) -> None:
    monkeypatch.setattr(tune_readahead, "under_file", lambda path: devices)
    assert says in refused(model, code=4)


@pytest.mark.usefixtures("as_root")
def test_parts_on_several_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = write_parts(tmp_path, parts=3, layers=2, experts=4)
    there = iter([VDA, "/sys/block/vdb/bdi/read_ahead_kb"])
    monkeypatch.setattr(
        tune_readahead, "under_file", lambda path: FileDevices(read_ahead_kb=128, read_ahead_path=next(there))
    )
    assert "several file systems" in refused(first, code=4)


@pytest.mark.usefixtures("as_root")
def test_a_model_that_is_open_in_a_process(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_readahead, "under_file", lambda path: FileDevices(read_ahead_kb=128, read_ahead_path=VDA))
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        said = refused(model, code=4)
    assert f"(pid {os.getpid()})" in said
    assert "stop it first" in said


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    "values",
    ["", "x", "64,,128", "2", "70000", "-4", "6", "1e3", "٦٤", ",".join(["64"] + [str(4 * n) for n in range(1, 40)])],
)
def test_values_that_are_none(model: Path, values: str) -> None:
    assert "--values" in refused(model, f"--values={values}", code=2)


def test_values_are_sorted_and_said_once(tmp_path: Path) -> None:
    assert tune_readahead._kibs(None, None, " 128,64, 128") == (64, 128)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rotational", "kib"), [(False, 64), (None, 64), (True, None)])
def test_what_a_profile_would_set_is_said_of_this_disk(model: Path, rotational: bool | None, kib: int | None) -> None:
    found = read_model(str(model))
    assert found.experts is not None
    devices = FileDevices(names=("sda",), rotational=rotational, read_ahead_kb=128, read_ahead_path=VDA)
    asked = tune_readahead._Asked(
        model=found,
        experts=found.experts,
        devices=devices,
        place=Place(VDA, Codec.INTEGER),
        device="vda",
        now_kib=128,
        values=(128,),
        slices=(),
        threads=1,
        seconds=1,
        budget_bytes=1,
    )
    curve = tune_readahead._Measured((Point(128, 1e6, 2.0, 1),), None, 1.0, ())
    assert tune_readahead._report(asked, curve, 0, 0.0, ()).computed_kib == kib


def test_a_plan_with_one_more_read_ahead_gives_nothing_back() -> None:
    place = Place("/proc/sys/vm/dirty_ratio", Codec.INTEGER)
    dirty = Held("vm.dirty_ratio", place, Cell(place.path, "20"), Cell(place.path, "10"), (), 1, 1)
    ours = Held("read_ahead_kb vda", Place(VDA, Codec.INTEGER), Cell(VDA, "8192"), Cell(VDA, "128"), (), 2, 2)
    steps = tune_readahead.steps_with([dirty, ours], "vda", ours.place, 64)
    assert [(step.wanted.spec.name, step.wanted.cell.value, step.kind) for step in steps] == [
        ("vm.dirty_ratio", "10", StepKind.WRITE),
        ("read_ahead_kb vda", "64", StepKind.WRITE),
    ]


# The whole of it, on a loop device of our own.


def command(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A model on a file system of its own, and the read-ahead of its device, which is 4096."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it sets up a loop device")
    directory = tmp_path_factory.mktemp("disk")
    image, point = directory / "image", directory / "mounted"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(96 << 20)
    try:
        command("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        device = command("losetup", "--find", "--show", str(image))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device to be had here: {error}")
    try:
        command("mount", device, str(point))
        try:
            model = point / "model.gguf"
            command(sys.executable, "-m", "moetuned.simulator", "make-model", str(model), "--size", "60M")
            os.sync()
            setting = Path(f"/sys/block/{device.removeprefix('/dev/')}/bdi/read_ahead_kb")
            setting.write_text("4096")
            yield model, setting
        finally:
            command("umount", str(point))
    finally:
        command("losetup", "--detach", device)


def measured(model: Path, journal: Path, *more: str, code: int = 0) -> dict[str, Any]:
    done = run(
        str(model), "--journal", str(journal), "--seconds", "3", "--values", "16,64,256", "--memory", "30M", "--json", *more,
        code=code,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.kernel
def test_measures_and_leaves_the_setting_as_it_was(disk: tuple[Path, Path], tmp_path: Path) -> None:
    model, setting = disk
    found = measured(model, tmp_path / "state/undo.jsonl")
    assert setting.read_text() == "4096\n"
    assert [each["kib"] for each in found["values"]] == [16, 64, 256, 4096]
    assert (found["now_kib"], found["applied"], found["model"]) == (4096, None, str(model))
    assert found["best_kib"] in (16, 64, 256)
    assert all(each["slices"] > 0 and each["useful_bytes_per_second"] > 0 for each in found["values"])
    grown = [each["read_bytes_per_useful_byte"] for each in found["values"]]
    assert grown == [None] * 4 or (0.9 < grown[0] < grown[2] < grown[3]), (
        "each value was in force when its file was opened"
    )
    assert os.listdir(tmp_path / "state") == ["readahead"]
    assert os.listdir(tmp_path / "state/readahead") == []


@pytest.mark.kernel
def test_for_people_it_is_a_plot_and_how_to_keep_it(disk: tuple[Path, Path], tmp_path: Path) -> None:
    done = run(
        str(disk[0]), "--journal", str(tmp_path / "undo.jsonl"), "--seconds", "1", "--values", "64", "--memory", "30M"
    )
    assert "<- now" in done.stdout
    assert "Expected speed: slices a second, less" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "model:" not in line) <= 80


@pytest.mark.kernel
def test_applied_through_the_journal_and_given_back(disk: tuple[Path, Path], tmp_path: Path) -> None:
    model, setting = disk
    journal = tmp_path / "state/undo.jsonl"
    try:
        found = measured(model, journal, "--apply")
        assert (found["applied"]["state"], found["applied"]["original"]) == ("applied", "4096")
        assert setting.read_text() == f"{found['best_kib']}\n"
        assert "restart" in found["applied"]["detail"]
        with open_journal(str(journal), read_boot_id(RealFS())) as held:
            assert [view.state for view in tuning.rollback(RealFS(), held)] == ["restored"]
        assert setting.read_text() == "4096\n"
    finally:
        setting.write_text("4096")


@pytest.mark.kernel
def test_beside_a_daemon_it_measures_and_does_not_apply(disk: tuple[Path, Path], tmp_path: Path) -> None:
    journal = tmp_path / "state/undo.jsonl"
    with open_journal(str(journal), read_boot_id(RealFS())):
        measured(disk[0], journal)
        said = run(str(disk[0]), "--journal", str(journal), "--apply", code=4).stderr
        assert "running daemon" in said


@pytest.mark.kernel
def test_what_never_reached_the_disk_says_nothing(
    disk: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_readahead, "read_round", lambda *_, **__: Round(10, 1000, 499, 1.0))
    said = run(str(disk[0]), "--journal", str(tmp_path / "undo.jsonl"), "--memory", "30M", code=1).stderr
    assert "did not come from the disk" in said
    assert disk[1].read_text() == "4096\n"


@pytest.mark.kernel
def test_a_kernel_that_does_not_count_still_gives_a_curve(
    disk: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_readahead, "read_round", lambda *_, **__: Round(10, 1000, None, 1.0))
    found = measured(disk[0], tmp_path / "state/undo.jsonl")
    assert (found["best_kib"], found["read_bytes"], found["noisy"]) == (64, None, False), "all alike: not below 64"
    assert {each["read_bytes_per_useful_byte"] for each in found["values"]} == {None}


@pytest.mark.kernel
def test_rounds_that_disagree_are_noise_and_no_proposal(
    disk: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_readahead, "is_noisy", is_noisy)
    seconds = iter([1, 2, 3, 4, 4, 1, 2, 3, 3, 2, 4, 1] * 2)
    monkeypatch.setattr(tune_readahead, "read_round", lambda *_, **__: Round(10, 1000, 1000, next(seconds)))
    found = measured(disk[0], tmp_path / "state/undo.jsonl", "--apply", code=1)
    assert (found["noisy"], found["best_kib"], found["applied"]) == (True, found["computed_kib"], None)
    assert disk[1].read_text() == "4096\n"
    assert {each["slices"] for each in found["values"]} == {50}, "two more rounds"
    seconds = iter([1, 2, 3, 4, 4, 1, 2, 3, 3, 2, 4, 1] * 2)
    said = run(
        str(disk[0]),
        "--journal",
        str(tmp_path / "state/undo.jsonl"),
        "--values",
        "16,64,256",
        "--memory",
        "30M",
        code=1,
    ).stdout
    assert "Too noisy to tell: the rounds differ by up to" in said


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("option", "says"), [("--bytes=1M", "one slice with each value"), ("--seconds=nan", "number of")]
)
def test_what_cannot_be_measured_with_is_a_usage_error(
    disk: tuple[Path, Path], tmp_path: Path, option: str, says: str
) -> None:
    assert says in run(str(disk[0]), "--journal", str(tmp_path / "state/undo.jsonl"), option, code=2).stderr


@pytest.mark.kernel
def test_the_median_of_the_rounds_counts(
    disk: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([1.0, 100.0, 2.0])
    monkeypatch.setattr(tune_readahead, "read_round", lambda *_, **__: Round(10, 1000, 1000, next(seconds)))
    done = run(
        str(disk[0]), "--journal", str(tmp_path / "undo.jsonl"), "--values", "4096", "--memory", "30M", "--json", code=0
    )
    (only,) = json.loads(done.stdout)["values"]
    assert (only["useful_bytes_per_second"], only["slices"]) == (500.0, 30)


@pytest.mark.kernel
def test_two_measurements_at_once_are_refused(disk: tuple[Path, Path], tmp_path: Path) -> None:
    journal = tmp_path / "state/undo.jsonl"
    with open_borrowed(str(journal), read_boot_id(RealFS())):
        assert "another" in run(str(disk[0]), "--journal", str(journal), code=4).stderr


@pytest.mark.kernel
def test_killed_in_the_very_moment_the_next_run_puts_it_back(disk: tuple[Path, Path], tmp_path: Path) -> None:
    model, setting = disk
    journal = str(tmp_path / "state/undo.jsonl")
    program = f"""
import os, signal
from moetuned.host.fs import RealFS
from moetuned.schema.tunable import Codec, Place
from moetuned.state.borrowed_setting import borrow, open_borrowed
from moetuned.state.undo_journal import read_boot_id
fs = RealFS()
with open_borrowed({journal!r}, read_boot_id(fs)) as journal:
    borrow(fs, journal, "read_ahead_kb x", Place({str(setting)!r}, Codec.INTEGER), "32", lambda: os.kill(os.getpid(), signal.SIGKILL))
"""
    try:
        done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL
        assert setting.read_text() == "32\n"
        found = measured(model, Path(journal))
        assert found["now_kib"] == 4096
        assert any("an earlier measurement was killed" in note for note in found["notes"])
        assert setting.read_text() == "4096\n"
    finally:
        setting.write_text("4096")


@pytest.mark.kernel
def test_ctrl_c_leaves_the_setting_as_it_was(disk: tuple[Path, Path], tmp_path: Path) -> None:
    model, setting = disk
    program = (
        "import os, signal; from moetuned.cli import tune_readahead as it; from moetuned.cli.main import main\n"
        # A shell's background job has it ignored, and its children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "it.read_round = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "tune", "readahead", str(model), "--journal", str(tmp_path / "s/undo.jsonl")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() == "moetunectl: stopped; the setting is as it was"
    assert setting.read_text() == "4096\n"
