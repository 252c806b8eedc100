"""Which backend is recorded: by name, by process, or the only one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.gguf_bytes import write_parts

from moetuned.api.errors import DaemonUnreachable
from moetuned.cli import record_choice as module
from moetuned.cli.record_choice import ChoiceError, choose
from moetuned.host.config_files import LoadedConfig
from moetuned.host.running_backends import FoundBackend
from moetuned.schema.config import Backend, Config
from moetuned.schema.snapshot import BackendView, SelfView, Snapshot
from moetuned.schema.verdict import Verdict

CODE = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (path,) = write_parts(tmp_path, parts=1)
    return path


@pytest.fixture
def backend(model: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is called as a backend is; it only waits for its input to close."""
    process = subprocess.Popen(
        ["llama-server", "-c", CODE, "-m", str(model), "--port", "8099", "--sleep-idle-seconds", "60"],
        executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.read(1) == b"x"
    yield process
    process.communicate()


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, backend: subprocess.Popen[bytes]) -> None:
    """On this machine nothing else runs."""
    find = module.Finder.find

    def own(self: object) -> tuple[FoundBackend, ...]:
        return tuple(one for one in find(self) if one.identity.pid == backend.pid)  # type: ignore[arg-type]

    monkeypatch.setattr(module.Finder, "find", own)


def no_daemon() -> Snapshot:
    raise DaemonUnreachable("moetuned is not running")


def daemon_with(*views: BackendView) -> Snapshot:
    return Snapshot(1, 0.0, 0.0, "observe", "observe", None, SelfView(1, "1", 0.0), backends=views)


def test_the_only_one_that_runs(only: None, backend: subprocess.Popen[bytes], model: Path) -> None:
    choice = choose(no_daemon)
    subject = choice.subject
    assert (subject.name, subject.kind, subject.process.pid) == ("llama-server-8099", "llama-server", backend.pid)
    assert (subject.url, subject.may_sleep) == ("http://127.0.0.1:8099", True)
    assert subject.model is not None
    assert subject.model.identity.paths == (str(model),)
    assert subject.disks == choice.devices.names


def test_none_or_several_is_a_question(
    monkeypatch: pytest.MonkeyPatch, only: None, backend: subprocess.Popen[bytes]
) -> None:
    found = module.Finder(module.backends.find).find()
    monkeypatch.setattr(module.Finder, "find", lambda _self: ())
    with pytest.raises(ChoiceError, match="no backend runs"):
        choose(no_daemon)
    monkeypatch.setattr(module.Finder, "find", lambda _self: found * 2)
    with pytest.raises(ChoiceError, match=rf"several .* llama-server-8099 \(pid {backend.pid}\), llama"):
        choose(no_daemon)


def test_a_process_by_its_number(backend: subprocess.Popen[bytes], model: Path) -> None:
    subject = choose(no_daemon, pid=backend.pid, url="http://127.0.0.1:1234").subject
    assert (subject.name, subject.url) == ("llama-server-8099", "http://127.0.0.1:1234")


def test_a_process_that_does_not_look_like_one(model: Path) -> None:
    subject = choose(no_daemon, pid=os.getpid(), model=str(model)).subject
    assert (subject.name, subject.kind, subject.url) == (f"process-pid{os.getpid()}", "process", None)
    assert subject.url_unknown is not None
    assert subject.model is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pid": 1 << 22}, "no process 4194304 runs"),
        ({"url": "http://example.com"}, "^--url 'http://example.com' is no HTTP address on this machine"),
        (
            {"url": "http://127.0.0.1:99999"},
            "^--url 'http://127.0.0.1:99999' .* at most 65535.*; write e.g. --url http",
        ),
        ({"url": "http://127.0.0.1:x"}, "^--url 'http://127.0.0.1:x' is no HTTP"),
        ({"url": "http://[::1"}, "^--url 'http://\\[::1' is no HTTP"),
        ({"model": "/nowhere/m.gguf"}, "/nowhere/m.gguf: cannot be opened"),
    ],
)
def test_what_cannot_be_is_said(backend: subprocess.Popen[bytes], options: dict[str, object], says: str) -> None:
    with pytest.raises(ChoiceError, match=says):
        choose(no_daemon, **{"pid": backend.pid, **options})  # type: ignore[arg-type]


def test_a_name_is_the_daemons(backend: subprocess.Popen[bytes], model: Path) -> None:
    view = BackendView(
        "glm", "llama-server", Verdict("glm", 0.0), "", pid=backend.pid, url="http://127.0.0.1:7", model_path=str(model)
    )
    resting = BackendView("idle", "llama-server", Verdict("idle", 0.0), "")
    subject = choose(lambda: daemon_with(view, resting), name="glm").subject
    assert (subject.name, subject.url, subject.process.pid) == ("glm", "http://127.0.0.1:7", backend.pid)
    with pytest.raises(ChoiceError, match="idle does not run now"):
        choose(lambda: daemon_with(view, resting), name="idle")
    with pytest.raises(ChoiceError, match="watches no backend 'x'; it watches: glm, idle"):
        choose(lambda: daemon_with(view, resting), name="x")


def test_without_a_daemon_a_name_is_the_configs(
    monkeypatch: pytest.MonkeyPatch, only: None, backend: subprocess.Popen[bytes]
) -> None:
    entries = (Backend("glm", url="http://127.0.0.1:8099"), Backend("other", url="http://127.0.0.1:8100"))
    monkeypatch.setattr(module, "load_files", lambda: LoadedConfig(Config(backends=entries)))
    assert choose(no_daemon, name="glm").subject.process.pid == backend.pid
    assert choose(no_daemon, name="llama-server-8099").subject.process.pid == backend.pid
    with pytest.raises(ChoiceError, match="other of the config does not run now; there run: llama-server-8099"):
        choose(no_daemon, name="other")
    with pytest.raises(ChoiceError, match="there is no backend 'x'"):
        choose(no_daemon, name="x")


def test_what_another_user_runs_is_refused(monkeypatch: pytest.MonkeyPatch, backend: subprocess.Popen[bytes]) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    for user, way in ((1000, "run this with sudo"), (0, "this root may not look at it")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        with pytest.raises(ChoiceError, match=way) as raised:
            module._check_readable(module.ProcessIdentity(backend.pid, 1))
        assert raised.value.refused
