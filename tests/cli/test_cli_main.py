from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from moetuned import __version__
from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable
from moetuned.cli import main


def test_version(capsys):
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"moetunectl {__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_commands_and_examples(capsys, flag):
    assert main.run([flag]) == 0
    out = capsys.readouterr().out
    for word in ("status", "events", "Examples:", "Exit codes"):
        assert word in out
    assert "status-view" not in out
    assert "main" not in out.split("Commands:")[1].split("Examples")[0].split()


def test_every_command_has_help_by_both_flags():
    """In a process of its own: click keeps a command's help option from its first use, alone or under the group."""
    code = (
        "import click, moetuned.cli.main as m\n"
        "names = m.group.list_commands(click.Context(m.group))\n"
        "assert len(names) >= 2\n"
        "assert [m.run([name, flag]) for name in names for flag in ('-h', '--help')] == [0] * 2 * len(names)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage: moetunectl status") == 2


@pytest.mark.parametrize("name", ["status", "events"])
def test_help_has_examples(capsys, name):
    assert main.run([name, "--help"]) == 0
    assert f"moetunectl {name}" in capsys.readouterr().out.split("Examples:")[1]


@pytest.mark.parametrize(
    "arguments", [["nope"], ["status", "--nope"], ["main"], ["status_view"], ["status-view"], ["../x"]]
)
def test_wrong_usage_is_2(capsys, arguments):
    assert main.run(arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DaemonUnreachable("moetuned is not running."), 3),
        (DaemonRefused("You may not."), 4),
        (DaemonError("No such backend."), 1),
        (PermissionError(13, "Permission denied", "/x"), 4),
        (click.Abort(), 130),
        (KeyboardInterrupt(), 130),
        (click.ClickException("no"), 1),
    ],
)
def test_errors_are_one_line_and_an_exit_code(capsys, monkeypatch, error, code):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(main.group, "main", fail)
    assert main.run(["status"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_ctrl_c_in_a_command_is_one_line(capsys, monkeypatch):
    def stop(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("moetuned.cli.residency.read_or_fail", stop)
    assert main.run(["residency", "/m.gguf"]) == 130
    assert capsys.readouterr().err == "moetunectl: interrupted\n"


def test_a_command_returns_its_exit_code(monkeypatch):
    monkeypatch.setattr(main.group, "main", lambda **_kwargs: 1)
    assert main.run([]) == 1


def test_what_help_lists_is_what_the_commands_say():
    """It is read from their sources, so that none of them is imported for it."""
    context = click.Context(main.group)
    found = {}
    for module in main._modules():
        command = main.group.get_command(context, module.replace("_", "-"))
        if command is not None:
            found[module] = command.get_short_help_str(66)
            assert not command.hidden
    assert main.group.list_commands(context) == [name.replace("_", "-") for name in found]
    assert {module: main.short_help(module, 66) for module in found} == found


def test_help_imports_no_command():
    code = "import sys, moetuned.cli.main as m; m.run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = [
        name for name in main.group.list_commands(click.Context(main.group)) if f"'moetuned.cli.{name}'" in done.stderr
    ]
    assert names == []
    assert "'msgspec'" not in done.stderr


def test_start_imports_nothing_heavy():
    """Not even for a command that is not run: only its own file is imported."""
    code = "import sys, moetuned.cli.main as m; m.run(['--version']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("msgspec", "http.client", "prometheus_client", "asyncio", "psutil", "yaml", "moetuned.cli.status"):
        assert f"'{heavy}'" not in done.stderr


_PRINTS = """
import sys, click
from moetuned.cli import main
@click.command()
def command():
    for _ in range({times}):
        {how}
main.CommandFiles.get_command = lambda self, ctx, name: command
sys.exit(main.run(["x"]))
"""


@pytest.mark.parametrize("how", ["click.echo('x' * 5000)", "sys.stdout.write('x' * 5000)"])
def test_a_full_disk_under_the_output_is_one_sentence_and_1(how):
    with open("/dev/full", "w") as full:
        code = _PRINTS.format(times=1, how=how)
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "moetunectl: cannot write the output: No space left on device.\n")


@pytest.mark.parametrize("how", ["click.echo('x' * 5000)", "sys.stdout.write('x' * 5000)", "sys.stdout.write('x')"])
def test_a_reader_that_is_gone_is_no_failure(how):
    read, write = os.pipe()
    os.close(read)
    code = _PRINTS.format(times=1 if how.endswith("('x')") else 50, how=how)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_without_a_reader_is_no_failure_and_on_a_full_disk_one_sentence():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "import moetuned.cli.main as m; m.main()", "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_other_errors_of_the_system_name_their_file(capsys, monkeypatch):
    def fail(*_args, **_kwargs):
        raise IsADirectoryError(21, "Is a directory", "/x")

    monkeypatch.setattr(main.group, "main", fail)
    assert main.run(["status"]) == 1
    assert capsys.readouterr().err == "moetunectl: /x: Is a directory.\n"


def test_ctrl_c_while_it_is_still_starting_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-c", "from moetuned.cli.main import main; main()"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")
