from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from moetuned.api.errors import DaemonError
from moetuned.cli import capabilities_here
from moetuned.cli.capabilities_here import rehearse_here
from moetuned.cli.status import command
from moetuned.host import config_files
from moetuned.schema.capability import Action, Answer, Capability, RehearsalFacts

CONFIG = "relief: {mode: act}\nbackends: [{name: glm, supervise: {by: systemd, unit: glm.service}}]\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "moetuned.yaml"
    file.write_text(CONFIG)
    real = config_files.load_files
    monkeypatch.setattr(capabilities_here, "load_files", lambda _path, *more, **given: real(str(file), *more, **given))
    monkeypatch.setenv("MOETUNED_STATE_DIR", str(tmp_path / "state"))
    return file


def test_it_rehearses_for_the_config_of_the_machine(config: Path) -> None:
    found = rehearse_here()
    assert (found.state, found.by) == ("done", "command")
    assert {"service_manager", "signals", "own_directories"} <= {one.rehearsal for one in found.capabilities}
    assert {one.backend for one in found.capabilities} == {None, "glm"}


def test_a_refusal_and_a_failure_are_told(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Capability("signals", "kill", (Action.PAUSE,), Answer.NO, "not permitted", backend="glm")
    monkeypatch.setattr(capabilities_here, "rehearsed", lambda _facts: (refused,))
    assert rehearse_here().cannot == ("pause glm (kill): not permitted",)

    def fail(_facts: RehearsalFacts) -> None:
        raise OSError("no process could be started")

    monkeypatch.setattr(capabilities_here, "rehearsed", fail)
    assert (rehearse_here().state, rehearse_here().detail) == ("failed", "no process could be started")


def test_a_config_that_cannot_be_used_is_told(config: Path) -> None:
    config.write_text("backends: 7\n")
    with pytest.raises(DaemonError, match="the config cannot be used"):
        rehearse_here()


def test_status_asks_itself_where_no_daemon_answers(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [Capability("signals", "kill", (Action.PAUSE,), Answer.YES, backend=name) for name in ("glm", "other", None)]
    monkeypatch.setattr(capabilities_here, "rehearsed", lambda _facts: tuple(both))
    socket = ["--socket", str(tmp_path / "none.sock")]
    said = CliRunner().invoke(command, ["--capabilities", *socket])
    assert said.exit_code == 0
    assert "rehearsed by moetunectl itself" in " ".join(said.output.split())
    said = CliRunner().invoke(command, ["glm", "--capabilities", "--json", *socket])
    assert [one["backend"] for one in json.loads(said.output)["capabilities"]] == ["glm", None]
    assert CliRunner().invoke(command, ["--capabilities", "--watch", *socket]).exit_code == 2
