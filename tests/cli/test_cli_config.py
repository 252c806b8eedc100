import json
import os

import pytest
import yaml
from click.testing import CliRunner

from moetuned.cli.config import command
from moetuned.cli.main import group
from moetuned.parse.config_sample import sample_config


@pytest.fixture
def run():
    before = os.umask(0o022)
    yield lambda *arguments: CliRunner().invoke(command, arguments)
    os.umask(before)


def test_sample_prints_the_sample(run):
    assert run("sample").output == sample_config()


def test_the_sample_passes_check(run, tmp_path):
    (tmp_path / "m.yaml").write_text(run("sample").output)
    result = run("check", str(tmp_path / "m.yaml"))
    assert (result.exit_code, result.stdout) == (0, f"ok: {tmp_path / 'm.yaml'}\n")


def test_check_lists_every_problem_and_exits_1(run, tmp_path):
    (tmp_path / "m.yaml").write_text(
        "watch: {interval: x}\ntuning: {profile: moe-offload, sysctl: {vm.dirty_ratoi: 1}}\n"
    )
    result = run("check", str(tmp_path / "m.yaml"))
    assert result.exit_code == 1
    assert "watch.interval: 'x' is no duration" in result.output
    assert "did you mean vm.dirty_ratio?" in result.output
    assert "2 problems; moetuned would not start with this." in result.output


def test_check_warns_without_failing(run, tmp_path):
    (tmp_path / "m.yaml").write_text("tuning: {thp: never}\n")
    result = run("check", str(tmp_path / "m.yaml"))
    assert result.exit_code == 0
    assert "warning:" in result.output
    assert "has no effect" in result.output


@pytest.mark.parametrize(("listen", "warned"), [("127.0.0.1:80", True), ("127.0.0.1:9843", False), (False, False)])
def test_check_warns_of_a_port_that_the_unit_may_not_have(run, tmp_path, monkeypatch, listen, warned):
    """Asked of systemd: a drop-in may allow it."""
    why = "moetuned.service may not listen on a port below 1024; choose another"
    monkeypatch.setattr("moetuned.cli.config.unit_cannot_take", lambda port: why if port == 80 else None)
    (tmp_path / "m.yaml").write_text(json.dumps({"api": {"listen": listen}}))
    result = run("check", str(tmp_path / "m.yaml"))
    assert result.exit_code == 0
    assert (f"warning: {tmp_path}/m.yaml:1: api.listen: '127.0.0.1:80': {why}" in result.output) is warned


def test_check_of_a_missing_file_exits_1_and_says_so(run, tmp_path):
    result = run("check", str(tmp_path / "none.yaml"))
    assert result.exit_code == 1
    assert "there is no such file" in result.output


def test_show_is_the_whole_config_and_can_be_read_again(run, tmp_path):
    (tmp_path / "m.yaml").write_text("watch: {interval: 2s}\nbackends: [{name: a}]\n")
    shown = run("show", str(tmp_path / "m.yaml")).output
    data = yaml.safe_load(shown)
    assert data["watch"] == {"interval": "2s", "discover": True, "residency_every": "10s", "idle_interval": "4s"}
    assert json.loads(run("show", str(tmp_path / "m.yaml"), "--json").output) == data
    (tmp_path / "again.yaml").write_text(shown)
    assert run("show", str(tmp_path / "again.yaml")).output == shown


@pytest.mark.parametrize("name", ["check", "show"])
def test_a_value_that_the_kernel_would_refuse_is_a_problem(run, tmp_path, name):
    (tmp_path / "m.yaml").write_text(
        "tuning: {profile: moe-offload, sysctl: {vm.dirty_ratio: 400, vm.overcommit_memory: x}}\n"
    )
    result = run(name, str(tmp_path / "m.yaml"))
    assert result.exit_code == 1
    assert f"{tmp_path / 'm.yaml'}:1: tuning.sysctl.vm.dirty_ratio: 400 is too large" in result.output
    assert "tuning.sysctl.vm.overcommit_memory: 'x' is no whole number" in result.output
    assert "2 problems; moetuned would not start with this." in result.output


def test_everything_wrong_comes_at_once_whatever_kind_of_wrong(run, tmp_path):
    (tmp_path / "m.yaml").write_text(
        "watch: {interval: 9s, discover: 3}\n"
        "tuning: {sysctl: {vm.dirty_ratio: x}}\n"
        "backends:\n"
        "  - {name: a, kind: llama-srver, url: 'https://x'}\n"
        "  - {name: b, context: {preferred: 1000, minimum: 3000}}\n"
    )
    result = run("check", str(tmp_path / "m.yaml"))
    assert result.exit_code == 1
    for said in ("watch.interval: '9s'", "watch.discover: 3", "vm.dirty_ratio: 'x'", "kind: 'llama-srver'",
                 "e.g. http://127.0.0.1:8080", "context.minimum: 3000"):  # fmt: skip
        assert said in result.output, said
    assert "6 problems" in result.output


def test_places_that_are_missing_are_warnings_beside_errors_too(run, tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(f"alerts: [{{kind: exec, directory: {tmp_path}/hooks}}]\n")
    result = run("check", str(path))
    assert result.exit_code == 0
    assert f"warning: {path}:1: alerts[0].directory: '{tmp_path}/hooks': there is no such directory" in result.stderr
    path.write_text(path.read_text() + "watch: {interval: 9s}\n")
    result = run("check", str(path))
    assert result.exit_code == 1
    assert "there is no such directory" in result.stderr
    assert "1 problem; moetuned would not start" in result.stderr


def test_help_has_examples():
    # Through the program: a command keeps the help option of the first context that it was asked in.
    result = CliRunner().invoke(group, ["config", "-h"])
    assert result.exit_code == 0
    assert "moetunectl config check" in result.output
