"""A kernel that refuses: whatever error a read, an open or a close gives, the sampler raises nothing and recovers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetuned.host import processes, sampler
from moetuned.host.cgroup import memory_cgroup, writable_hierarchy
from moetuned.host.fs import READ_LIMIT_BYTES, RealFS
from moetuned.host.sampler import Sampler
from moetuned.host.static_texts import read_static
from moetuned.parse.assemble import assemble
from moetuned.schema.sample import BackendIdentity

ERRORS = (
    "EIO",
    "ESRCH",
    "EACCES",
    "EINTR",
    "ENOMEM",
    "EMFILE",
    "ENFILE",
    "ENODEV",
    "ENOTCONN",
    "EOPNOTSUPP",
    "EINVAL",
    "ESTALE",
)
STAT = "7 (a) b\n) S 1 7 7 0 -1 0 0 0 3 0 1 2 0 0 20 0 1 0 99 0 0\n"
OWN = BackendIdentity("b", pid=7, cgroup_directory="/sys/fs/cgroup/x", cgroup_version=2, disks=("vda",), start_ticks=99)


class Clock:
    def monotonic(self) -> float:
        return 1.0

    def wall(self) -> float:
        return 2.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {
        "proc/meminfo": "MemTotal: 1 kB\n",
        "proc/7/stat": STAT,
        "proc/7/status": "Name:\ta\n",
        "proc/7/io": "a: 1\nread_bytes: 1\n",
        "sys/block/vda/stat": "1 2\n",
        "sys/fs/cgroup/x/memory.current": "5\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


class FailingOs:
    """`os` of the sampler, whose calls fail as told: by name and count of the call."""

    def __init__(self, fails: Callable[[str], int | None]) -> None:
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("open", "pread", "read", "close"):
            return real

        def call(*given_to: Any, **named: Any) -> Any:
            number = self._fails(name)
            if number is not None:
                if name == "close":
                    real(*given_to)  # it is closed all the same
                raise OSError(number, os.strerror(number))
            return real(*given_to, **named)

        return call


def number_of(name: str) -> int:
    return int(getattr(errno, name))


@pytest.mark.parametrize("call", ["open", "pread", "read", "close"])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_every_call_and_then_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for warm in (False, True):
        reader = Sampler(Clock(), str(root))
        if warm:
            reader.read([OWN], {})
        with monkeypatch.context() as patched:
            patched.setattr(sampler, "os", FailingOs(lambda called: number_of(name) if called == call else None))
            raw = reader.read([OWN], {})
            backend = assemble(raw, [OWN]).backends[0]
            if name not in ("ESRCH", "ENOENT"):
                assert not backend.process_gone, "a process that cannot be looked at has not ended"
            reader.read([], {})
            reader.close()
        if name not in ("ESRCH", "ENOENT") or call in ("close", "pread"):
            assert reader.read([OWN], {}).files["/proc/meminfo"] == "MemTotal: 1 kB\n"
            assert reader.read([OWN], {}).files["/proc/7/stat"] == STAT
        reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(fails=st.lists(st.sampled_from([None, None, None, *ERRORS]), max_size=60))
def test_errors_in_any_order(root: Path, fails: list[str | None]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    left = iter(fails)

    def next_error(_call: str) -> int | None:
        name = next(left, None)
        return None if name is None else number_of(name)

    reader = Sampler(Clock(), str(root))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampler, "os", FailingOs(next_error))
        for _ in range(4):
            assemble(reader.read([OWN], {}), [OWN])
    assert reader.read([OWN], {}).files["/sys/fs/cgroup/x/memory.current"] == "5\n"
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_it_is_is_asked_again_after_it_could_not_be_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "proc/7/stat").write_text(STAT.replace(" 99 ", " 100 "))
    reader, opened = Sampler(Clock(), str(root)), []

    def second_of_process(call: str) -> int | None:
        opened.append(call)
        return errno.EMFILE if call == "read" else None

    with monkeypatch.context() as patched:
        patched.setattr(sampler, "os", FailingOs(second_of_process))
        assert "/proc/7/io" not in reader.read([OWN], {}).files
    files = reader.read([OWN], {}).files
    assert [files[f"/proc/7/{name}"] for name in ("stat", "status", "io")] == [None, None, None], "another process"
    reader.close()


def test_lxcfs_ends_and_is_started_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of an open file of it give ENOTCONN, and so does closing it."""
    reader = Sampler(Clock(), str(root))
    reader.read([], {})
    with monkeypatch.context() as patched:
        patched.setattr(sampler, "os", FailingOs(lambda _call: errno.ENOTCONN))
        assert reader.read([], {}).files["/proc/meminfo"] is None
    assert reader.read([], {}).files["/proc/meminfo"] == "MemTotal: 1 kB\n"
    reader.close()


class FailingFS(RealFS):
    """Files of which none can be read, or only the first few calls succeed."""

    def __init__(self, number: int, after: int, root: str) -> None:
        super().__init__(root)
        self._number, self._left = number, after

    def _try(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(self._number, os.strerror(self._number))

    def read_text(self, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str:
        self._try()
        return super().read_text(path, limit_bytes)

    def list_directory(self, path: str) -> list[str]:
        self._try()
        return super().list_directory(path)

    def resolve_link(self, path: str) -> str:
        self._try()
        return super().resolve_link(path)


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("name", ERRORS)
def test_what_looks_a_process_up_raises_nothing(root: Path, name: str, after: int) -> None:
    (root / "proc/self").mkdir()
    (root / "proc/7/cgroup").write_text("0::/x\n")
    (root / "proc/self/mountinfo").write_text("31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")

    def files() -> FailingFS:
        return FailingFS(number_of(name), after, str(root))

    memory_cgroup(7, files())
    writable_hierarchy(files())
    processes.identify(7, files())
    processes.is_alive(processes.ProcessIdentity(7, 99), files())
    processes.command_line(7, files())
    processes.environment(7, "LLAMA_ARG_", files())
    processes.executable(7, files())
    processes.mapped_models(7, files())
    assert len(read_static(processes.ProcessIdentity(7, 99), ["vda"], None, files())) > 10


@given(cgroup=st.text(max_size=60), mountinfo=st.text(max_size=60), point=st.text(max_size=8), path=st.text(max_size=8))
def test_a_hostile_place_of_a_process_is_unknown(cgroup: str, mountinfo: str, point: str, path: str) -> None:
    class Two(RealFS):
        def read_text(self, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str:
            if path == "/proc/7/cgroup":
                return f"0::/{written}\n{cgroup}"
            if path == "/proc/self/mountinfo":
                return f"31 23 0:26 / {point} rw - cgroup2 cgroup2 rw\n{mountinfo}"
            return super().read_text(path, limit_bytes)

    written = path
    found = memory_cgroup(7, Two("/nowhere"))
    assert found.directory is None
