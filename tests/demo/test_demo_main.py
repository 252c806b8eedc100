"""The demo around its scenes: what it refuses, the files it makes, and that it takes them back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from show_scenes import FakeDaemon, snapshot

from moetuned.api.errors import DaemonUnreachable
from moetuned.demo import __main__ as demo
from moetuned.demo.backend_choice import KINDS, Choice, choose
from moetuned.demo.box import Box
from moetuned.demo.daemon_process import DaemonProcess
from moetuned.demo.screen import Screen
from moetuned.demo.show import Show
from moetuned.demo.visitor import Visitor
from moetuned.host.config_files import load_files
from moetuned.host.processes import identify
from moetuned.schema.config import Mode, Profile
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseProcess
from moetuned.state import backend_record


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No daemon of this machine is asked, and SIGTERM does afterwards what it did before."""

    def nobody(_client: object) -> None:
        raise DaemonUnreachable("moetuned is not running")

    monkeypatch.setattr(demo.Client, "status", nobody)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The demo of somebody who is not root, with the stand-in."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return lambda *arguments: demo.main(["--backend", "stand-in", *arguments])


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Making a model is an interruption; the directories in which it was to be made."""
    directories: list[str] = []

    def interrupted(directory: str, size_bytes: int) -> str:
        directories.append(directory)
        assert os.path.isdir(directory)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_make_model", interrupted)
    return directories


@pytest.mark.parametrize("arguments", [["--backend", "ollama"], ["--colour"], ["extra"], ["--size"]])
def test_wrong_arguments_are_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        demo.main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m moetuned.demo" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--backend", "--size", "--directory", "--plain", "Examples:", *KINDS])
def test_the_help_names_everything(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        demo.main(["--help"])
    assert caught.value.code == 0
    assert word in capsys.readouterr().out


def test_a_size_that_is_none_leaves_nothing(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--size", "large", "--directory", str(tmp_path)) == 2
    assert "'large' is no size" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "gone"
    assert run("--directory", str(missing)) == 2
    assert str(missing) in capsys.readouterr().err


def test_a_backend_that_is_not_there(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLAMA_SERVER", "/no/such/llama-server")
    assert run("--backend", "auto") == 2
    assert "/no/such/llama-server, which is no program" in capsys.readouterr().err


def test_it_does_not_run_beside_a_daemon(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_model: list[str]
) -> None:
    monkeypatch.setattr(demo.Client, "status", lambda client: snapshot())
    assert run() == 2
    assert "stop it first: systemctl stop moetuned" in capsys.readouterr().err
    assert no_model == []


def test_ended_early_it_takes_its_directory_back(
    run: Callable[..., int], tmp_path: Path, no_model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--directory", str(tmp_path)) == 130
    assert len(no_model) == 1
    assert list(tmp_path.iterdir()) == []
    assert "everything was taken back" in capsys.readouterr().err


def test_sigterm_ends_it_as_ctrl_c_does(
    run: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_make_model", lambda directory, size: signal.raise_signal(signal.SIGTERM))
    assert run("--directory", str(tmp_path)) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_made_is_told(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--size", "4K", "--directory", str(tmp_path)) == 2
    assert "the model could not be made" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def choice() -> Choice:
    return choose("stand-in", 8123, 1)


@pytest.fixture
def parts(tmp_path: Path) -> tuple[str, str]:
    """A directory and a model in it."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    return str(tmp_path), str(model)


def test_the_config_is_a_good_one_in_a_cgroup(parts: tuple[str, str], choice: Choice) -> None:
    directory, model = parts
    hooks, _ = demo._hooks(directory)
    made = Box("/sys/fs/cgroup/moetuned-demo-1", 2)
    loaded = load_files(demo._config(directory, model, choice, made, hooks))
    assert loaded.warnings == ()
    backend = loaded.config.backends[0]
    assert isinstance(backend.supervise, SuperviseProcess)
    assert (backend.supervise.cgroup, backend.model, backend.url) == (made.directory, model, "http://127.0.0.1:8123")
    assert (loaded.config.tuning.profile, loaded.config.relief.mode) == (Profile.MOE_OFFLOAD, Mode.ACT)
    assert loaded.config.api.listen is False
    assert set(loaded.config.alerts[0].on) == {EventName.THRASH_BEGIN, EventName.MEMORY_NEAR_LIMIT}


def test_without_root_the_config_changes_nothing(parts: tuple[str, str], choice: Choice) -> None:
    directory, model = parts
    hooks, _ = demo._hooks(directory)
    config = load_files(demo._config(directory, model, choice, None, hooks)).config
    assert (config.tuning.profile, config.relief.mode) == (Profile.OBSERVE, Mode.OBSERVE)
    assert isinstance(config.backends[0].supervise, SuperviseProcess)
    assert config.backends[0].supervise.cgroup is None


def test_the_hook_writes_its_line_whatever_the_message_holds(tmp_path: Path) -> None:
    hooks, log = demo._hooks(str(tmp_path))
    (hook,) = os.listdir(hooks)
    message = 'demo\'s cache is $(small) "100 %s"'
    environment = {"MOETUNED_EVENT": "thrash_begin", "MOETUNED_MESSAGE": message}
    for _ in range(2):
        subprocess.run([f"{hooks}/{hook}"], env=environment, check=True)
    assert Path(log).read_text() == f"thrash_begin {message}\n" * 2


def test_a_backend_that_a_killed_daemon_left_is_ended(tmp_path: Path) -> None:
    left = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        identity = identify(left.pid)
        assert identity is not None
        record = backend_record.BackendRecord(demo.NAME, left.pid, identity.start_ticks, ("sleep", "60"), 4096, "boot")
        backend_record.write(record, str(tmp_path / "backends"))
        demo._end_backend(str(tmp_path))
        assert left.wait(10) == -signal.SIGKILL
        assert list(tmp_path.iterdir()) == []
    finally:
        left.kill()
        left.wait()


def test_another_process_with_that_pid_is_let_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        identity = identify(other.pid)
        assert identity is not None
        record = backend_record.BackendRecord(demo.NAME, other.pid, identity.start_ticks - 1, ("a",), 4096, "boot")
        backend_record.write(record, str(tmp_path / "backends"))
        demo._end_backend(str(tmp_path))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_no_backend_left_is_no_error(tmp_path: Path) -> None:
    demo._end_backend(str(tmp_path))


def shown(visitor: Visitor | None = None) -> Show:
    show = Show(cast("DaemonProcess", FakeDaemon(snapshot())), Screen(plain=True), demo.NAME, "/no/log")
    show.visitor = visitor
    show.observed.fact("squeeze to thrash_begin", "4.2 s")
    show.observed.read_bytes[1] = 3 << 30
    return show


def test_the_summary_when_all_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    visitor = Visitor(1)
    visitor.answered, visitor.refused = 20, 3
    demo._summary(shown(visitor), boxed=True, problem=None)
    out = capsys.readouterr().out
    assert "squeeze to thrash_begin  4.2 s" in out
    assert "20 answered, 3 refused" in out
    assert "3.0 GiB" in out
    assert out.endswith("Everything was seen.\n")


def test_the_summary_says_what_was_not_seen_or_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    demo._summary(shown(), boxed=False, problem="warm: not seen within 60 s")
    out = capsys.readouterr().out
    assert "Not shown: squeeze" in out
    assert "sudo make demo" in out
    assert out.endswith("NOT seen: warm: not seen within 60 s\n")
