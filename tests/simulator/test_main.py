import pytest

from moetuned.simulator.__main__ import COMMANDS, main


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("argv", [[], ["nothing"]])
def test_no_command_is_usage(argv, capsys):
    assert main(argv) == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_has_help(name, capsys):
    try:
        status = main([name, "--help"])
    except SystemExit as ended:
        status = ended.code
    assert status == 0
    assert "moetuned.simulator" in capsys.readouterr().out
