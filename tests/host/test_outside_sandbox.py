"""Whether and how programs leave the daemon's unit; that they do is in test_outside_sandbox_booted.py."""

from __future__ import annotations

import logging
import os
import signal
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import outside_sandbox
from moetuned.host.bounded_program import run_bounded
from moetuned.host.outside_sandbox import End, Outside, environment_file, leave, own_service
from moetuned.host.run_identity import Identity

SH = ("/bin/sh", "-c", "echo $HOME")


def cgroup(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cgroup"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ("0::/moetuned.slice/moetuned.service\n", "moetuned.service"),
        ("3:memory:/x.service\n1:name=systemd:/system.slice/moetuned@a.service\n", "moetuned@a.service"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.service\n", None),
        ("0::/\n", None),
        ("0::/a/-x.service\n", None),
        ("rubbish", None),
        ("", None),
    ],
)
def test_the_service_is_the_systems_own(tmp_path: Path, text: str, service: str | None) -> None:
    path = cgroup(tmp_path, text)
    assert own_service(path, {}) == service
    assert own_service(path, {"SERVICE_RESULT": "success"}) is None, "one that stops starts nothing"
    assert own_service(str(tmp_path / "none"), {}) is None


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True),
        st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    )
)
def test_the_file_says_what_a_shell_reads_the_same_way(environment: dict[str, str]) -> None:
    """In double quotes both take the same four characters for special (systemd.exec(5); tried on a real one in the other file)."""
    text = environment_file(environment)
    read, at = {}, 0
    while at < len(text):
        name, _, rest = text[at:].partition('="')
        value, position = "", 0
        while rest[position] != '"':
            position += rest[position] == "\\"
            value += rest[position]
            position += 1
        read[name] = value
        at += len(name) + 2 + position + 2
    assert read == environment


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a service of a booted systemd, whose programs are there."""
    monkeypatch.setattr(outside_sandbox, "can_leave", lambda: True)
    monkeypatch.setattr(outside_sandbox, "own_service", lambda: "moetuned.service")
    monkeypatch.setattr(outside_sandbox, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(outside_sandbox, "_said", set())


@pytest.mark.usefixtures("away")
def test_neither_values_nor_variables_are_on_the_command_line(tmp_path: Path) -> None:
    directory = tmp_path / "outside"
    run = leave(SH, {"KEY": "secret"}, 5, Identity(7, 8, (9, 10)), str(directory))
    assert run is not None
    assert "secret" not in " ".join(run.argv) + str(run.environment)
    (own,) = directory.iterdir()
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (directory, own, own / "environment")] == [
        0o700,
        0o700,
        0o600,
    ]
    assert (own / "environment").read_text() == 'KEY="secret"\n'
    at = run.argv.index("--")
    assert run.argv[at + 1 :] == ["/bin/sh", "-c", "echo $$HOME"]
    assert {"--uid=7", "--gid=8", "--property=SupplementaryGroups=9 10", "--property=RuntimeMaxSec=20"} < set(
        run.argv[:at]
    )
    (unset,) = [word for word in run.argv if word.startswith("--property=UnsetEnvironment=")]
    assert "INVOCATION_ID" in unset
    run.close()
    assert list(directory.iterdir()) == []


@pytest.mark.usefixtures("away")
def test_what_cannot_be_run_at_all_is_the_same_error_as_without(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        leave(("/bin/absent",), {}, 5, None, str(tmp_path))
    with pytest.raises(PermissionError):
        leave(("/etc/passwd",), {}, 5, None, str(tmp_path))
    with pytest.raises(ValueError, match="null byte"):
        leave(SH, {"A": "\0"}, 5, None, str(tmp_path))


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("environment", [{"A-B": ""}, {"A": "\udc80"}])
def test_what_systemd_would_not_take_stays_inside_and_that_is_said_once(
    tmp_path: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert [leave(SH, environment, 5, None, str(tmp_path)) for _ in range(2)] == [None, None]
    assert len(caplog.records) == 1
    assert "within the restrictions of moetuned's unit" in caplog.text


@pytest.mark.usefixtures("away")
def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert leave(SH, {}, 5, None, str(tmp_path / "file")) is None
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("exited 0\n", End(0)),
        ("exited 203\n", End(203)),
        ("killed KILL\n", End(None)),
        ("dumped SEGV\n", End(None)),
        (" \n", None),
        ("exited 0", None),
        ("rubbish\n", None),
    ],
)
def test_how_it_ended_is_read_from_what_systemd_left(tmp_path: Path, text: str, end: End | None) -> None:
    (tmp_path / "end").write_text(text)
    run = Outside("x.service", str(tmp_path), [])
    assert run.end() == end
    run.close()
    assert run.end() is None


class _Away(Outside):
    """What leave() would give, for a command of the test's own in place of systemd-run."""

    signals: list[int]

    running: bool = False

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def runs(self) -> bool:
        return self.running


def taking(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> _Away:
    run = _Away("x.service", str(directory), ["/bin/sh", "-c", script])
    run.signals = []
    monkeypatch.setattr(outside_sandbox, "leave", lambda *_: run)
    monkeypatch.setattr(outside_sandbox, "_said", set())
    return run


def test_the_code_is_what_systemd_says_and_not_what_systemd_run_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taking(monkeypatch, tmp_path, f"cat; echo killed TERM >{tmp_path}/end; exit 0")
    ended = run_bounded(SH, {}, 60, b"in", outside=True)
    assert (ended.exit_code, ended.output, ended.timed_out) == (None, b"in", False)


def test_one_that_outlives_systemd_run_is_not_run_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = taking(monkeypatch, tmp_path, "echo said; kill -9 $$")
    looks = iter([True, True, False])

    def runs() -> bool:
        found = next(looks)
        if not found:
            (tmp_path / "end").write_text("exited 4\n")
        return found

    monkeypatch.setattr(run, "runs", runs)
    ended = run_bounded(("/bin/false",), {}, 60, outside=True)
    assert (ended.exit_code, ended.timed_out, ended.output) == (4, False, b"said\n")


def test_one_that_outlives_systemd_run_and_its_deadline_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = taking(monkeypatch, tmp_path, "kill -9 $$")
    run.running = True
    monkeypatch.setattr("moetuned.host.bounded_program.TERM_SECONDS", 0.0)
    monkeypatch.setattr("moetuned.host.bounded_program.KILL_SECONDS", 0.0)
    ended = run_bounded(("/bin/true",), {}, 0.2, outside=True)
    assert (ended.exit_code, ended.timed_out, run.signals) == (
        None,
        True,
        [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL],
    )


def test_what_was_never_started_there_is_run_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taking(monkeypatch, tmp_path, "echo no bus >&2; exit 1")
    ended = run_bounded(("/bin/cat",), {}, 60, b"in", outside=True)
    assert (ended.exit_code, ended.output) == (0, b"in")
    assert "systemd does not start them: no bus" in caplog.text


def test_at_the_deadline_the_unit_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = taking(monkeypatch, tmp_path, "sleep 600")
    monkeypatch.setattr("moetuned.host.bounded_program.TERM_SECONDS", 0.1)
    monkeypatch.setattr("moetuned.host.bounded_program.KILL_SECONDS", 0.1)
    assert run_bounded(SH, {}, 0.2, outside=True).timed_out
    assert run.signals == [15, 9]


def test_without_a_booted_systemd_nothing_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_sandbox, "is_booted", lambda: False)
    assert leave(SH, {}, 5, None) is None
