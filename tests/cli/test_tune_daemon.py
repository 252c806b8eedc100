"""moetunectl tune beside a daemon: what is asked, what is shown, and how it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes.fake_kernel import BOOT_ID, usual_kernel

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable
from moetuned.cli import tune, tune_daemon, tune_options
from moetuned.cli.tune_options import Options
from moetuned.state.undo_journal import open_journal

VIEW = {
    "name": "vm.dirty_ratio",
    "state": "applied",
    "wanted": "at-most 10",
    "now": "10",
    "original": "20",
    "detail": "",
}


class Daemon:
    """What answers at the socket: `answer` is returned, or raised."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.sockets: list[str] = []
        self.answer: Any = {"tuning": [VIEW], "notes": ["it said this"]}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    it = Daemon()

    def post(client: Client, path: str, payload: object = None) -> object:
        it.asked.append((path, payload))
        it.sockets.append(client._path)
        if isinstance(it.answer, Exception):
            raise it.answer
        return it.answer

    monkeypatch.setattr(Client, "post", post)
    return it


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake = usual_kernel()
    for module in (tune, tune_options):
        monkeypatch.setattr(module, "RealFS", lambda _root: fake)
    config = tmp_path / "etc/moetuned/moetuned.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("tuning: {profile: moe-offload}\n")
    config.chmod(0o600)
    return tmp_path


def journal(root: Path) -> str:
    return str(root / "var/lib/moetuned/undo.jsonl")


@pytest.fixture
def run(root: Path) -> Callable[..., Result]:
    """A command while somebody else holds the journal."""

    def run(*arguments: str, code: int = 0) -> Result:
        with open_journal(journal(root), BOOT_ID):
            result = CliRunner().invoke(
                tune.command, [*arguments, "--root", str(root), "--socket", "/run/some.sock"], catch_exceptions=False
            )
        assert result.exit_code == code, result.output + result.stderr
        return result

    return run


def test_the_daemon_is_asked_to_apply(run: Callable[..., Result], daemon: Daemon, root: Path) -> None:
    result = run("apply", "--json")
    assert json.loads(result.stdout) == {
        "ok": True,
        "tuning": [VIEW],
        "notes": ["it said this", tune_daemon.HAS_READ],
    }
    assert daemon.asked == [("/v1/tune", {"do": "apply", "journal": journal(root)})]
    assert daemon.sockets == ["/run/some.sock"]
    text = run("apply")
    assert "vm.dirty_ratio" in text.stdout
    assert "note: it said this" in text.stderr
    daemon.answer = {"tuning": [VIEW | {"state": "drifted"}]}
    run("apply", code=1)


def test_what_the_person_means_is_told(run: Callable[..., Result], daemon: Daemon, root: Path) -> None:
    config = root / "etc/moetuned/moetuned.yaml"
    run("apply", "--config", os.path.relpath(config), "--profile", "moe-offload")
    assert daemon.asked[0][1] == {
        "do": "apply",
        "journal": journal(root),
        "config": str(config),
        "profile": "moe-offload",
    }


def test_the_daemon_is_asked_to_give_back(run: Callable[..., Result], daemon: Daemon) -> None:
    daemon.answer = {"tuning": [VIEW | {"state": "restored"}, VIEW | {"state": "drifted"}], "notes": []}
    assert "restored" in run("rollback").stdout
    daemon.answer = {"tuning": [VIEW | {"state": "failed"}]}
    run("rollback", code=1)
    daemon.answer = {}
    assert "Nothing to give back" in run("rollback").stdout
    assert {what["do"] for _, what in daemon.asked} == {"rollback"}


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (
            DaemonUnreachable("moetuned is not running (no socket)."),
            3,
            "cannot be asked to apply: moetuned is not running",
        ),
        (DaemonRefused("Only root may."), 4, "Only root may."),
        (DaemonError("the daemon uses the profile moe-offload, not observe; edit"), 4, "the daemon uses the profile"),
        ({"tuning": [{"state": 7}]}, 4, "none of this version"),
        ([], 4, "none of this version"),
    ],
)
def test_a_daemon_that_does_not_do_it(
    run: Callable[..., Result], daemon: Daemon, answer: Any, code: int, says: str
) -> None:
    daemon.answer = answer
    result = run("apply", code=code)
    assert says in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def test_alone_it_asks_nobody(run: Callable[..., Result], daemon: Daemon) -> None:
    """After the end of a daemon its unit gives back what it left, and must not tell another one to."""
    assert "another moetuned process holds" in run("rollback", "--alone", code=4).stderr
    assert daemon.asked == []


def test_looking_asks_nobody(root: Path, daemon: Daemon) -> None:
    with open_journal(journal(root), BOOT_ID):
        for command in ("plan", "verify"):
            CliRunner().invoke(tune.command, [command, "--root", str(root)], catch_exceptions=False)
    assert daemon.asked == []


def test_a_tree_of_files_has_no_daemon_unless_it_is_named(root: Path, daemon: Daemon) -> None:
    with open_journal(journal(root), BOOT_ID):
        result = CliRunner().invoke(tune.command, ["apply", "--root", str(root)])
    assert (result.exit_code, daemon.asked) == (4, [])
    assert "another moetuned process holds" in result.stderr


def test_members_of_the_group_may_ask_without_root(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("MOETUNED_STATE_DIR", raising=False)
    for do in ("apply", "rollback"):
        result = CliRunner().invoke(tune.command, [do], catch_exceptions=False)
        assert result.exit_code == 0
        assert daemon.asked.pop() == ("/v1/tune", {"do": do, "journal": "/var/lib/moetuned/undo.jsonl"})
        daemon.answer = DaemonRefused("You may not use it.")
        refused = CliRunner().invoke(tune.command, [do])
        assert (refused.exit_code, refused.stderr) == (4, "moetunectl: You may not use it.\n")
        daemon.answer = DaemonUnreachable("nobody there")
        assert "needs root" in CliRunner().invoke(tune.command, [do]).stderr
        daemon.answer = {}
        daemon.asked.clear()


def test_who_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert tune_daemon.may_write(Options(False, "/tree", "/tree/j"))
    assert not tune_daemon.may_write(Options(False, "/", "/j"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert tune_daemon.may_write(Options(False, "/", "/j"))
