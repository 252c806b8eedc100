"""moetunectl tune over the fake kernel: what a person and a program see, and the exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.fake_kernel import BOOT_ID, FakeKernel, Text, add_disk
from tune_over_fake import as_json, run

from moetuned import tunables
from moetuned.cli import tune, tune_options
from moetuned.schema.capability import Action, Answer, Capabilities, Capability
from moetuned.schema.tunable import Cell, Codec, Place
from moetuned.state import borrowed_setting
from moetuned.state.undo_journal import open_journal


def value(kernel: FakeKernel, name: str) -> str:
    return kernel.foreign_read(f"/proc/sys/vm/{name}").strip()


def journal(root: Path) -> Path:
    return root / "var/lib/moetuned/undo.jsonl"


def test_plan_shows_now_wanted_why_and_when_not_and_changes_nothing(root: Path, kernel: FakeKernel) -> None:
    text = run(root, "plan").stdout
    row = next(line for line in text.splitlines() if line.startswith("vm.dirty_ratio"))
    assert row.split()[:5] == ["vm.dirty_ratio", "20", "at-most", "10", "write"]
    assert "Not when:" in text
    assert next(line for line in text.splitlines() if line.startswith("transparent_hugepage")).split()[3] == "already"
    assert value(kernel, "dirty_ratio") == "20"
    assert not journal(root).exists()


def test_plan_as_data(root: Path) -> None:
    plan = as_json(root, "plan")
    assert plan["profile"] == "moe-offload"
    step = next(step for step in plan["steps"] if step["name"] == "vm.overcommit_memory")
    assert (step["step"], step["now"], step["wanted"], step["original"]) == ("write", "0", "1", None)
    assert step["why"]


def test_apply_verify_drift_and_rollback(root: Path, kernel: FakeKernel) -> None:
    assert [view["state"] for view in as_json(root, "verify", code=1)["tuning"]].count("planned") == 4
    applied = as_json(root, "apply")
    assert applied["ok"] is True
    assert value(kernel, "vfs_cache_pressure") == "50"
    assert as_json(root, "verify")["ok"] is True
    plan = as_json(root, "plan")
    assert {step["original"] for step in plan["steps"]} == {None, "0", "20", "10", "100"}

    kernel.foreign_write("/proc/sys/vm/vfs_cache_pressure", "77")
    seen = run(root, "verify", code=1).stdout
    assert "drifted" in seen
    assert "somebody changed it to 77; left alone" in seen

    given_back = as_json(root, "rollback")
    assert {view["name"]: view["state"] for view in given_back["tuning"]} == {
        "vm.vfs_cache_pressure": "drifted",
        "vm.overcommit_memory": "restored",
        "vm.dirty_ratio": "restored",
        "vm.dirty_background_ratio": "restored",
    }
    assert (value(kernel, "dirty_ratio"), value(kernel, "vfs_cache_pressure")) == ("20", "77")
    assert "stays at 77, somebody's" in run(root, "rollback").stdout, "what is left to others is said each time"
    assert "yielded" in run(root, "verify", code=1).stdout
    assert journal(root).exists(), "who changed it is not fought during this boot"


def test_apply_reports_drift_first_and_takes_it_up_when_asked_again(root: Path, kernel: FakeKernel) -> None:
    run(root, "apply")
    kernel.foreign_write("/proc/sys/vm/vfs_cache_pressure", "77")
    report = as_json(root, "apply", code=1)
    view = next(view for view in report["tuning"] if view["name"] == "vm.vfs_cache_pressure")
    assert (report["ok"], view["state"], view["now"]) == (False, "drifted", "77")
    assert view["detail"].endswith("left alone; `moetunectl tune apply` once more sets it again")
    assert as_json(root, "apply")["ok"] is True
    assert value(kernel, "vfs_cache_pressure") == "50"
    assert as_json(root, "verify")["ok"] is True
    run(root, "rollback")
    assert value(kernel, "vfs_cache_pressure") == "77"
    assert not journal(root).exists()


def test_rollback_before_anything_was_applied_makes_nothing(root: Path) -> None:
    assert "Nothing to give back" in run(root, "rollback").stdout
    assert not journal(root).parent.exists()


def test_observe_says_there_is_nothing_and_what_to_try(root: Path) -> None:
    (root / "etc/moetuned/moetuned.yaml").write_text("")
    assert "--profile moe-offload" in run(root, "plan").stdout
    assert "Nothing to set" in run(root, "apply").stdout
    assert not journal(root).parent.exists()
    assert as_json(root, "plan", "--profile", "moe-offload")["steps"]


def test_a_wrong_config_is_refused_with_its_key(root: Path) -> None:
    config = root / "etc/moetuned/moetuned.yaml"
    config.write_text("tuning: {profile: moe-offload, sysctl: {vm.dirty_ratio: 400}}\n")
    for arguments in (["plan"], ["apply"], ["verify"]):
        assert "tuning.sysctl.vm.dirty_ratio" in run(root, *arguments, code=2).stderr
    assert "nowhere.yaml" in run(root, "plan", "--config", str(root / "nowhere.yaml"), code=2).stderr


def test_a_held_journal_is_respected_and_looking_still_works(root: Path, kernel: FakeKernel) -> None:
    run(root, "apply")
    with open_journal(str(journal(root)), BOOT_ID):
        assert "another moetuned process" in run(root, "apply", code=4).stderr
        assert "another moetuned process" in run(root, "rollback", code=4).stderr
        assert as_json(root, "verify")["ok"] is True
        assert as_json(root, "plan")["steps"]
    assert value(kernel, "dirty_ratio") == "10"


def test_a_journal_where_others_can_write_is_refused(root: Path, kernel: FakeKernel) -> None:
    directory = root / "open"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    for command in ("apply", "plan", "rollback"):
        message = run(root, command, "--journal", str(directory / "undo.jsonl"), code=2).stderr
        assert "no directory of the journal's own" in message
    assert value(kernel, "dirty_ratio") == "20"


def test_a_file_that_is_no_journal_is_refused(root: Path) -> None:
    directory = root / "private"
    directory.mkdir(mode=0o700)
    (directory / "passwd").write_text("root:x:0:0\nbin:x:1:1\n")
    assert "is no undo journal" in run(root, "verify", "--journal", str(directory / "passwd"), code=2).stderr


def test_what_is_asked_for_a_cgroup_and_not_set_is_said(root: Path, tmp_path: Path) -> None:
    """The profile observe sets nothing of a backend's either; with another it would be."""
    config = tmp_path / "moetuned.yaml"
    config.write_text(
        "tuning: {profile: observe}\nbackends:\n  - name: glm\n    memory_low: 8GiB\n    io_weight: 500\n"
    )
    said = run(root, "plan", "--config", str(config)).stderr
    for key in ("memory_low: '8GiB'", "io_weight: 500"):
        assert f"backends[0].{key}: has no effect: tuning.profile is observe, which changes nothing" in said
    assert (
        "tuning.profile is observe" not in run(root, "plan", "--config", str(config), "--profile", "moe-offload").stderr
    )


def test_a_root_that_is_not_there_is_a_usage_error(root: Path) -> None:
    assert "does not exist" in run(root / "nowhere", "plan", code=2).stderr


def leftover(root: Path, kernel: FakeKernel, setting: str, original: str, value: str) -> str:
    """What a measurement that was killed leaves: its journal, and its value. The journal's path."""
    with borrowed_setting.open_borrowed(str(journal(root)), BOOT_ID) as borrowed:
        place = Place(setting, Codec.INTEGER)
        borrowed.intend("vm.vfs_cache_pressure", place, Cell(setting, original), Cell(setting, value))
    kernel.foreign_write(setting, value)
    return borrowed_setting.journal_path(str(journal(root)))


PRESSURE = "/proc/sys/vm/vfs_cache_pressure"


def test_apply_gives_back_what_a_killed_measurement_left_before_it_takes_originals(
    root: Path, kernel: FakeKernel
) -> None:
    leftover(root, kernel, PRESSURE, "100", "7")
    line = next(step for step in as_json(root, "plan")["steps"] if step["name"] == "vm.vfs_cache_pressure")
    assert (line["step"], line["now"]) == ("give back", "7")
    assert "measurement that was killed left it" in line["reason"]
    view = next(view for view in as_json(root, "verify", code=1)["tuning"] if view["name"] == "vm.vfs_cache_pressure")
    assert (view["state"], view["now"]) == ("planned", "7")
    assert value(kernel, "vfs_cache_pressure") == "7", "plan and verify only look"
    run(root, "apply")
    assert value(kernel, "vfs_cache_pressure") == "50"
    run(root, "rollback")
    assert value(kernel, "vfs_cache_pressure") == "100"


def test_what_a_killed_measurement_left_is_no_drift(root: Path, kernel: FakeKernel) -> None:
    run(root, "apply")
    leftover(root, kernel, PRESSURE, "50", "7")
    view = next(view for view in as_json(root, "verify", code=1)["tuning"] if view["name"] == "vm.vfs_cache_pressure")
    assert (view["state"], view["original"]) == ("planned", "100")
    assert as_json(root, "apply")["ok"] is True
    assert value(kernel, "vfs_cache_pressure") == "50"
    run(root, "rollback")
    assert value(kernel, "vfs_cache_pressure") == "100"


def test_a_leftover_is_said_and_given_back_though_nothing_is_wanted(root: Path, kernel: FakeKernel) -> None:
    (root / "etc/moetuned/moetuned.yaml").write_text("")
    leftover(root, kernel, PRESSURE, "100", "7")
    assert "give back" in run(root, "plan").stdout
    assert "planned" in run(root, "verify", code=1).stdout
    run(root, "apply")
    assert value(kernel, "vfs_cache_pressure") == "100"
    assert as_json(root, "verify")["tuning"] == []


def test_what_a_running_measurement_has_borrowed_is_no_drift(root: Path, kernel: FakeKernel) -> None:
    run(root, "apply")
    leftover(root, kernel, PRESSURE, "50", "7")
    with open_journal(borrowed_setting.journal_path(str(journal(root))), BOOT_ID):
        view = next(view for view in as_json(root, "verify")["tuning"] if view["name"] == "vm.vfs_cache_pressure")
        assert (view["state"], view["detail"]) == ("applied", borrowed_setting.BORROWED)
        line = next(step for step in as_json(root, "plan")["steps"] if step["name"] == "vm.vfs_cache_pressure")
        assert line["reason"] == borrowed_setting.BORROWED


def test_settings_of_the_machine_need_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("MOETUNED_RUNTIME_DIR", str(tmp_path))  # no daemon there to do it
    for arguments in (["apply", "--profile", "moe-offload"], ["rollback"]):
        result = CliRunner().invoke(tune.command, arguments)
        assert result.exit_code == 4
        assert "needs root" in result.stderr


def test_without_a_boot_id_nothing_is_changed(root: Path, kernel: FakeKernel) -> None:
    del kernel.files["/proc/sys/kernel/random/boot_id"]
    assert "boot_id" in run(root, "apply", code=4).stderr
    assert value(kernel, "dirty_ratio") == "20"
    assert "originals are not known" in run(root, "plan").stderr


def test_explain(root: Path) -> None:
    text = run(root, "explain", "vm.dirty_bytes").stdout
    assert text.startswith("vm.dirty_ratio: ")
    for label in ("why:", "not when:", "source:", "wanted: at-most 10 in moe-offload", "now: 20", "config key:"):
        assert label in text
    assert len(as_json(root, "explain")) == len(tunables.module_names())
    assert "side effect" not in text
    assert "side effect: The kernel computes vm.min_free_kbytes anew" in run(root, "explain", "thp").stdout
    assert "transparent_hugepage" in run(root, "explain", "vm.nothing", code=2).stderr


def test_the_state_directory_of_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOETUNED_STATE_DIR", "/nowhere")
    run(root, "apply")
    assert journal(root).exists(), "a tree of files keeps its own journal"
    options = tune_options.options_of({"as_json": False, "root": "/", "journal": None})
    assert options.journal == "/nowhere/undo.jsonl"


def test_a_journal_with_lines_nobody_understands_is_a_no(root: Path, kernel: FakeKernel) -> None:
    run(root, "apply")
    with open(journal(root), "ab") as file:
        file.write(b"rubbish\n")
    given_back = as_json(root, "rollback", code=1)
    assert given_back["ok"] is False
    assert {view["state"] for view in given_back["tuning"]} == {"restored"}
    assert value(kernel, "dirty_ratio") == "20"
    damaged = journal(root).with_name("undo.jsonl.damaged")
    assert damaged.exists()
    run(root, "rollback")

    journal(root).write_bytes(b"rubbish\nrubbish\n")
    result = run(root, "rollback", code=1)
    assert "2 lines of the undo journal cannot be read" in result.stderr
    assert str(damaged) in result.stderr
    assert "Nothing else to give back" in result.stdout


def test_rollback_gives_back_what_a_killed_measurement_left(root: Path, kernel: FakeKernel) -> None:
    run(root, "apply")
    path, pressure = borrowed_setting.journal_path(str(journal(root))), "/proc/sys/vm/vfs_cache_pressure"
    with open_journal(path, BOOT_ID) as borrowed:
        place = Place(pressure, Codec.INTEGER)
        borrowed.intend("read_ahead_kb vda", place, Cell(pressure, "50"), Cell(pressure, "7"))
    kernel.foreign_write(pressure, "7")
    assert {view["state"] for view in as_json(root, "rollback")["tuning"]} == {"restored"}
    assert value(kernel, "vfs_cache_pressure") == "100"
    Path(path).write_text("rubbish\n")
    assert "measurement that was killed" in run(root, "rollback").stderr


@pytest.fixture
def disk(root: Path, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> str:
    """A disk under /models, and a config that sets its read-ahead; the path of the setting."""
    path = add_disk(kernel, "vda", "254:0", 8192, "/models")

    def device_number(asked: str) -> tuple[int, int]:
        if asked != f"{root}/models/a.gguf":
            raise FileNotFoundError(2, "No such file or directory", asked)
        return 254, 0

    monkeypatch.setattr(tune_options, "device_number", device_number)
    (root / "etc/moetuned/moetuned.yaml").write_text(
        "tuning: {profile: moe-offload, read_ahead: 128}\n"
        "backends: [{name: a, model: /models/a.gguf}, {name: b, model: /models/b.gguf}, {name: c}]\n"
    )
    return path


def test_read_ahead_of_the_models(root: Path, kernel: FakeKernel, disk: str) -> None:
    steps = {step["name"]: step for step in as_json(root, "plan")["steps"]}
    assert (steps["read_ahead_kb vda"]["now"], steps["read_ahead_kb vda"]["wanted"]) == ("8192", "128")
    assert steps["read_ahead_kb vda"]["why"]
    assert steps["read_ahead_kb /models/b.gguf"]["step"] == "skipped"
    assert "No such file" in steps["read_ahead_kb /models/b.gguf"]["reason"]
    assert "restart backends" in run(root, "apply").stdout
    assert kernel.foreign_read(disk) == "128\n"
    assert as_json(root, "verify")["ok"] is True
    (entry,) = as_json(root, "explain", "read_ahead")
    assert "read_ahead_kb vda 128" in entry["now"]
    assert "read_ahead_kb /models/b.gguf unknown, cannot find the disk" in entry["now"]
    assert entry["original"] == "read_ahead_kb vda 8192"
    run(root, "rollback")
    assert kernel.foreign_read(disk) == "8192\n"


def test_read_ahead_is_explained_without_models_and_without_a_config(root: Path, kernel: FakeKernel) -> None:
    assert "no backend of the config has a model" in run(root, "explain", "read_ahead").stdout
    (root / "etc/moetuned/moetuned.yaml").write_text("tunning: {}\n")
    (entry,) = as_json(root, "explain", "read_ahead_kb")
    assert "the config cannot be used" in entry["now"]
    assert as_json(root, "explain", "vm.dirty_ratio")[0]["now"] == "20"


def test_explain_helps_with_a_typo_and_points_to_swap(root: Path) -> None:
    assert "did you mean vm.swappiness?" in run(root, "explain", "vm.swapiness", code=2).stderr
    for key in ("swap", "tuning.swap", "zram"):
        assert "docs/configure.md#swap" in " ".join(run(root, "explain", key).stdout.split())
    assert as_json(root, "explain", "swap")[0]["name"] == "swap"


def test_verify_in_observe_says_which_files_set_values_at_boot(root: Path, kernel: FakeKernel) -> None:
    (root / "etc/moetuned/moetuned.yaml").write_text("")
    assert run(root, "verify").stderr == ""
    kernel.files["/etc/sysctl.d/90-moetuned.conf"] = Text("x\n")
    assert "/etc/sysctl.d/90-moetuned.conf sets values at each boot" in run(root, "verify").stderr


@pytest.mark.parametrize(
    "command", ["plan", "apply", "verify", "rollback", "explain", "persist", "unpersist", "readahead"]
)
def test_each_has_examples(command: str) -> None:
    text = CliRunner().invoke(tune.command, [command, "--help"]).stdout
    assert f"moetunectl tune {command}" in text.partition("Examples:")[2]


def test_a_plan_says_what_a_daemon_that_runs_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Capability("setting_files", PRESSURE, (Action.CHANGE_SETTING,), Answer.NO, "read-only file system")
    other = Capability("signals", "kill", (Action.PAUSE,), Answer.NO, "not permitted")
    found = Capabilities("done", capabilities=(refused, refused, other))
    monkeypatch.setattr("moetuned.api.client.Client.capabilities", lambda _client: found)
    said = CliRunner().invoke(tune.command, ["plan", "--profile", "moe-offload", "--json"])
    notes = json.loads(said.stdout)["notes"]
    told = [note for note in notes if "from its sandbox" in note]
    assert told == [f"the daemon cannot do that from its sandbox: {PRESSURE}: read-only file system"]
