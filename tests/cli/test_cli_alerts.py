"""moetunectl alerts: its subcommands."""

from __future__ import annotations

from moetuned.cli import main


def test_it_lists_its_subcommands(capsys) -> None:
    assert main.run(["alerts", "--help"]) == 0
    said = capsys.readouterr().out
    assert "  list" in said
    assert "  test" in said
