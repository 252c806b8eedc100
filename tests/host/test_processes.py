"""Processes: identity, command line, signals."""

from __future__ import annotations

import errno
import mmap
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moetuned.host import processes
from moetuned.host.fs import RealFS
from moetuned.host.processes import ProcessHandle, ProcessIdentity


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "61.5"], env={"LLAMA_ARG_PORT": "81", "SECRET": "x", "LLAMA_ARG_HOST": "a=b"})
    yield process
    process.kill()
    process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    identity = processes.identify(process.pid)
    assert identity is not None
    return identity


def test_what_a_process_runs(child: subprocess.Popen[bytes]) -> None:
    identity = identity_of(child)
    assert processes.is_alive(identity)
    assert not processes.is_alive(ProcessIdentity(identity.pid, identity.start_ticks + 1))
    assert [found for found in processes.find(lambda argv: argv[-1] == "61.5") if found.identity == identity] == [
        processes.FoundProcess(identity, ("sleep", "61.5"))
    ]
    assert processes.environment(child.pid, "LLAMA_ARG_") == {"LLAMA_ARG_PORT": "81", "LLAMA_ARG_HOST": "a=b"}
    assert (processes.executable(child.pid) or "").endswith(("sleep", "coreutils", "busybox"))


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        (FileNotFoundError(), True),
        (ProcessLookupError(), True),
        (OSError(errno.EMFILE, "Too many open files"), False),
        (PermissionError(), False),
        ("", False),
        ("7 (x) S 1 " + "0 " * 17 + "5 " + "0 " * 30, False),
        ("7 (x) S 1 " + "0 " * 17 + "6 " + "0 " * 30, True),
        ("7 (x) Z 1 " + "0 " * 17 + "5 " + "0 " * 30, True),
    ],
)
def test_what_cannot_be_read_has_not_ended(answer: str | OSError, ended: bool) -> None:
    class Files(RealFS):
        def read_text(self, path: str, limit_bytes: int = 0) -> str:
            assert path == "/proc/7/stat"
            if isinstance(answer, OSError):
                raise answer
            return answer

    assert processes.has_ended(ProcessIdentity(7, 5), Files()) is ended


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    identity = identity_of(child)
    with_handle = ProcessHandle(identity)
    child.kill()
    assert select.select([with_handle], [], [], 10)[0] == [with_handle]
    assert with_handle.ended()
    assert not processes.is_alive(identity)
    assert processes.identify(child.pid) is None
    assert not with_handle.send(signal.SIGTERM)
    with_handle.close()
    assert with_handle.ended()


def test_a_signal_reaches_the_process(child: subprocess.Popen[bytes]) -> None:
    handle = ProcessHandle(identity_of(child))
    assert not handle.ended()
    assert handle.send(signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM
    assert not handle.send(signal.SIGTERM)
    handle.close()


def test_a_handle_on_another_process_with_the_pid_is_refused(child: subprocess.Popen[bytes]) -> None:
    identity = identity_of(child)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ProcessLookupError):
        ProcessHandle(ProcessIdentity(identity.pid, identity.start_ticks - 1))
    assert len(os.listdir("/proc/self/fd")) == before


def test_mapped_models_of_a_real_process(tmp_path: Path) -> None:
    model = tmp_path / "with space.gguf"
    model.write_bytes(b"GGUF" * 4096)
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert str(model) in processes.mapped_models(os.getpid())
    assert str(model) not in processes.mapped_models(os.getpid())


def test_own_command_line() -> None:
    argv = processes.command_line(os.getpid())
    assert argv is not None
    assert argv[0] == sys.orig_argv[0]


@pytest.mark.parametrize("stat", [None, "", "7 (x) Z 1 7 7 0 -1 0 0 0 3 0 1 2 0 0 20 0 1 0 99 0 0\n", "7 (x) S 1\n"])
def test_gone_ended_or_strange_is_nobody(tmp_path: Path, stat: str | None) -> None:
    fs = RealFS(str(tmp_path))
    if stat is not None:
        (tmp_path / "proc/7").mkdir(parents=True)
        (tmp_path / "proc/7/stat").write_text(stat)
    assert processes.identify(7, fs) is None
    assert processes.command_line(7, fs) is None
    assert processes.environment(7, "A", fs) == {}
    assert processes.executable(7, fs) is None
    assert processes.mapped_models(7, fs) == ()


@pytest.mark.parametrize(
    ("text", "argv"),
    [("a\0b c\0\0", ("a", "b c", "")), ("", ()), ("title without end", ("title without end",))],
)
def test_command_lines(tmp_path: Path, text: str, argv: tuple[str, ...]) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cmdline").write_text(text)
    assert processes.command_line(7, RealFS(str(tmp_path))) == argv
