from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import click
import msgspec
import pytest
from fakes.gguf_bytes import gguf_bytes, moe_metadata, moe_tensors

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.cli import tune_options
from moetuned.cli.tune_options import Options, options_of
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.config import Backend, Config, Profile
from moetuned.state.undo_journal import JournalContents


def given(**values: object) -> Options:
    return options_of({"as_json": False, "root": "/", "journal": None, **values})


def test_where_the_journal_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOETUNED_STATE_DIR", raising=False)
    assert given().journal == "/var/lib/moetuned/undo.jsonl"
    assert given(root=str(tmp_path)).journal == f"{tmp_path}/var/lib/moetuned/undo.jsonl"
    monkeypatch.setenv("MOETUNED_STATE_DIR", "/elsewhere")
    assert given().journal == "/elsewhere/undo.jsonl"
    monkeypatch.chdir(tmp_path)
    assert given(journal="x/undo.jsonl").journal == f"{tmp_path}/x/undo.jsonl"


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "moetuned.yaml"
    path.write_text(text)
    return str(path)


def test_the_profile_option_wins(tmp_path: Path) -> None:
    path = config(tmp_path, "tuning: {profile: moe-offload, thp: keep}")
    assert tune_options.read_config(given(config=path)).tuning.profile is Profile.MOE_OFFLOAD
    other = tune_options.read_config(given(config=path, profile="moe-offload-zram")).tuning
    assert (other.profile, other.thp) == (Profile.MOE_OFFLOAD_ZRAM, "keep")


def test_a_broken_config_ends_the_command_with_its_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, "tuning: {profil: moe-offload}")
    with pytest.raises(ConfigError):
        tune_options.read_config(given(config=path))
    with pytest.raises(SystemExit) as end:
        tune_options.config_or_fail(given(config=path))
    assert end.value.code == tune_options.EXIT_USAGE
    assert "did you mean profile?" in capsys.readouterr().err


def test_a_value_the_kernel_would_refuse_ends_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = given(config=config(tmp_path, "tuning: {profile: moe-offload, sysctl: {vm.dirty_ratio: at-most 101}}"))
    with pytest.raises(SystemExit) as end:
        tune_options.planned_steps(options, tune_options.config_or_fail(options), {})
    assert end.value.code == tune_options.EXIT_USAGE
    assert "vm.dirty_ratio: 'at-most 101' is too large" in capsys.readouterr().err


def test_models_are_looked_for_under_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "m").mkdir(parents=True)
    (root / "m" / "a.gguf").write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    options = given(root=str(root), config=config(tmp_path, "backends: [{name: a, model: /m/a.gguf}]"))
    (model,) = tune_options.targets_of(options, tune_options.read_config(options)).models
    assert model.path == "/m/a.gguf"
    assert model.slice_bytes


def test_what_cannot_be_read_of_the_journal_is_a_note(tmp_path: Path) -> None:
    contents, notes = tune_options.look(given(root=str(tmp_path)))
    assert contents == JournalContents()
    assert "boot_id" in notes[0]


def test_a_table_has_its_paragraphs_below_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    tune_options.print_table(("A", "B"), [("one", "x"), ("2", "y")], [["first"], ["second", "third"]])
    assert capsys.readouterr().out == "A    B\none  x\n    first\n2    y\n    second\n    third\n"
    tune_options.print_table(("A", "B"), [])
    assert capsys.readouterr().out == ""


def test_every_subcommand_of_a_file_of_its_own_is_there() -> None:
    from moetuned.cli.tune import _IN_FILES, command

    context = click.Context(command)
    assert {name for name in command.list_commands(context) if command.get_command(context, name) is None} == set()
    for name in _IN_FILES:
        found = command.get_command(context, name)
        assert found is not None
        assert found.name == name


def test_on_a_narrow_terminal_the_last_cell_stands_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = ("vm.dirty_ratio", "a reason that is longer than the terminal is wide")
    tune_options.print_table(("A", "B"), [row])
    assert max(map(len, capsys.readouterr().out.splitlines())) > 40, "no terminal: a line each"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    tune_options.print_table(("A", "B"), [row])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "vm.dirty_ratio"
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("settings", [{"memory_low": "1GiB"}, {"memory_min": "1GiB"}, {"io_weight": 500}])
def test_cgroups_of_backends_that_run_are_the_daemons_to_tell(
    settings: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = (SimpleNamespace(name="glm", cgroup="/sys/fs/cgroup/ai/glm"), SimpleNamespace(name="qwen", cgroup=None))
    monkeypatch.setattr(Client, "status", lambda _self: SimpleNamespace(backends=views))
    entries = [{"name": "glm", **settings}, {"name": "qwen", **settings}]
    asked = Config(backends=msgspec.convert(entries, list[Backend]))
    targets = tune_options.targets_of(given(), asked)
    assert [(one.backend, one.directory) for one in targets.cgroups] == [
        ("glm", "/sys/fs/cgroup/ai/glm"),
        ("qwen", None),
    ]
    # Of another root no daemon of this machine knows anything.
    elsewhere = tune_options.targets_of(given(root=str(tmp_path)), asked)
    assert [one.directory for one in elsewhere.cgroups] == [None, None]


def test_a_daemon_is_asked_only_where_a_cgroup_is_and_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_self: Client) -> None:
        raise DaemonError("no daemon answers")

    monkeypatch.setattr(Client, "status", gone)
    asked = Config(backends=[Backend("glm", memory_low="1GiB")])
    assert [one.directory for one in tune_options.targets_of(given(), asked).cgroups] == [None]
    monkeypatch.setattr(Client, "status", lambda _self: pytest.fail("asked for nothing"))
    assert tune_options.targets_of(given(), Config(backends=[Backend("glm")])).cgroups == ()
