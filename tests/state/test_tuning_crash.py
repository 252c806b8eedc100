"""Every crash and every interleaving: whatever happens, what was there before moetuned, or what others put there, comes back."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, Number, usual_kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetuned import tunables
from moetuned.host import durable_file
from moetuned.schema.config import Profile, Tuning
from moetuned.state import tuning
from moetuned.state.undo_journal import JournalError, open_journal

MOE = Tuning(profile=Profile.MOE_OFFLOAD)
OTHER = Tuning(
    profile=Profile.MOE_OFFLOAD, thp="madvise", sysctl={"vm.dirty_ratio": 7, "vm.dirty_background_bytes": 4096}
)
OBSERVE = Tuning()
VM = "/proc/sys/vm/"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
MODES = ("before", "after", "torn")


class Crash(BaseException):
    """The process is gone: nothing it would do afterwards happens."""


class Fuse:
    """Counts the steps at which a process can die and dies at one of them."""

    def __init__(self, at: int | None, mode: str = "before") -> None:
        self.at, self.mode, self.count, self.dead = at, mode, 0, False

    def step(self, run: Callable[[], Any], torn: Callable[[], Any] | None = None) -> Any:
        if self.dead:
            raise Crash
        self.count += 1
        if self.count != self.at:
            return run()
        self.dead = True
        if self.mode == "after":
            run()
        elif self.mode == "torn" and torn is not None:
            torn()
        raise Crash


class DyingOS:
    """The os module as durable_file sees it, with a fuse in every call that changes the disk. fsync is not made: slow."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name == "fsync":
            return lambda _descriptor: self._fuse.step(lambda: None)
        if name == "pwrite":
            return lambda fd, data, at: self._fuse.step(
                lambda: os.pwrite(fd, data, at), lambda: os.pwrite(fd, data[: len(data) // 2], at)
            )
        if name in ("ftruncate", "unlink", "replace", "mkdir"):
            return lambda *arguments: self._fuse.step(lambda: real(*arguments))
        return real


class DyingKernel:
    """A process's view of the kernel: it dies at the fuse, the kernel lives on."""

    def __init__(self, kernel: FakeKernel, fuse: Fuse) -> None:
        self._kernel, self._fuse = kernel, fuse

    def read_text(self, path: str, limit_bytes: int = 1 << 20) -> str:
        return str(self._fuse.step(lambda: self._kernel.read_text(path, limit_bytes)))

    def write_text(self, path: str, text: str) -> None:
        self._fuse.step(lambda: self._kernel.write_text(path, text))

    def exists(self, path: str) -> bool:
        return self._kernel.exists(path)

    def list_directory(self, path: str) -> list[str]:
        return self._kernel.list_directory(path)

    def resolve_link(self, path: str) -> str:
        return self._kernel.resolve_link(path)


@contextmanager
def process(kernel: FakeKernel, at: int | None = None, mode: str = "before") -> Iterator[tuple[DyingKernel, Fuse]]:
    """A process that may die at step `at`; the kernel and the disk stay as they then are."""
    fuse = Fuse(at, mode)
    durable_file.os = DyingOS(fuse)  # type: ignore[assignment]
    try:
        yield DyingKernel(kernel, fuse), fuse
    except Crash:
        assert fuse.dead
    finally:
        durable_file.os = os


@contextmanager
def state_directory() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="moetuned-test-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        yield os.path.join(directory, "state", "undo.jsonl")
    finally:
        shutil.rmtree(directory)


def apply(kernel: DyingKernel, path: str, wanted: Tuning) -> None:
    with open_journal(path, BOOT_ID) as journal:
        steps, problems = tunables.plan_tuning(kernel, wanted)
        assert problems == ()
        tuning.apply(kernel, journal, steps)


def rollback(kernel: DyingKernel, path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        tuning.rollback(kernel, journal)


def kernel_with_bytes() -> FakeKernel:
    kernel = usual_kernel()
    kernel.foreign_write(VM + "dirty_bytes", "1048576")
    return kernel


def kernel_that_adjusts() -> FakeKernel:
    kernel = usual_kernel()
    kernel.files[VM + "vfs_cache_pressure"] = Number(100, adjust=lambda value: max(value, 64))
    kernel.files[VM + "overcommit_memory"] = Number(0, adjust=lambda value: value * 2)
    return kernel


KERNELS = [usual_kernel, kernel_with_bytes, kernel_that_adjusts]


def in_force(kernel: FakeKernel) -> dict[str, str]:
    """One value a tunable: the twin when it is in force."""
    values = kernel.settings()
    for name in ("dirty", "dirty_background"):
        twin = values.pop(f"{VM}{name}_bytes")
        values[f"{VM}{name}_ratio"] = values[f"{VM}{name}_ratio"] if twin == "0\n" else f"bytes {twin}"
    return values


def steps_of(make: Callable[[], FakeKernel], work: list[Callable[[DyingKernel, str], None]], last: int) -> int:
    """How many steps the last of `work` takes."""
    kernel = make()
    with state_directory() as path:
        for number, run in enumerate(work):
            with process(kernel) as (view, fuse):
                run(view, path)
            if number == last:
                return fuse.count
    raise AssertionError


def apply_moe(kernel: DyingKernel, path: str) -> None:
    apply(kernel, path, MOE)


def apply_other(kernel: DyingKernel, path: str) -> None:
    apply(kernel, path, OTHER)


WORK: dict[str, list[Callable[[DyingKernel, str], None]]] = {
    "apply": [apply_moe],
    "another configuration": [apply_moe, apply_other],
    "rollback": [apply_moe, rollback],
}

RECOVERIES = ([rollback], [apply_moe, rollback], [apply_other, apply_moe, rollback])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("make", KERNELS)
def test_a_crash_at_every_step_leaves_original_or_ours_and_rollback_brings_all_back(
    make: Callable[[], FakeKernel], name: str, mode: str
) -> None:
    work = WORK[name]
    allowed: dict[str, set[str]] = {}
    kernel = make()
    originals = in_force(kernel)
    with state_directory() as path:
        for run in [*work, apply_moe, apply_other]:
            for key, value in in_force(kernel).items():
                allowed.setdefault(key, set()).add(value)
            with process(kernel) as (view, _):
                run(view, path)
        for key, value in in_force(kernel).items():
            allowed[key].add(value)
    total = steps_of(make, work, len(work) - 1)
    assert total > 20
    for at in range(1, total + 1):
        recovery = RECOVERIES[
            (at + MODES.index(mode)) % len(RECOVERIES)
        ]  # over the modes, each step meets each recovery
        kernel = make()
        with state_directory() as path:
            for run in work[:-1]:
                with process(kernel) as (view, _):
                    run(view, path)
            with process(kernel, at, mode) as (view, fuse):
                work[-1](view, path)
            assert fuse.dead
            for key, value in in_force(kernel).items():
                assert value in allowed[key], (at, key)
            for run in recovery:
                with process(kernel) as (view, _):
                    run(view, path)
            assert in_force(kernel) == originals, (at, recovery)
            assert not os.path.exists(path)


@pytest.mark.parametrize("make", KERNELS)
def test_a_crash_of_the_rollback_after_a_crash_of_the_apply(make: Callable[[], FakeKernel]) -> None:
    originals = in_force(make())
    total = steps_of(make, [apply_moe], 0)
    for first in range(1, total + 1, 3):
        second, died = 0, True
        while died:
            second += 1
            kernel = make()
            with state_directory() as path:
                with process(kernel, first, "after") as (view, _):
                    apply_moe(view, path)
                with process(kernel, second, "after") as (view, fuse):
                    rollback(view, path)
                died = fuse.dead
                with process(kernel) as (view, _):
                    rollback(view, path)
                assert in_force(kernel) == originals, (first, second)


FOREIGN = {  # values nobody else would use: never what moetuned sets, nor what a kernel makes of it
    VM + "overcommit_memory": ("0", "0"),
    VM + "dirty_ratio": ("33", "44"),
    VM + "dirty_bytes": ("65536", "131072"),
    VM + "dirty_background_ratio": ("3", "44"),
    VM + "dirty_background_bytes": ("65536", "131072"),
    VM + "vfs_cache_pressure": ("77", "200"),
    THP: ("always", "always"),
}

foreign_changes = st.tuples(
    st.just("foreign"),
    st.sampled_from(sorted(FOREIGN)).flatmap(lambda path: st.tuples(st.just(path), st.sampled_from(FOREIGN[path]))),
)
works = st.tuples(st.just("work"), st.sampled_from([MOE, OTHER, OBSERVE, None]))
crashes = st.tuples(
    st.just("crash"), st.tuples(st.sampled_from([MOE, OTHER, None]), st.integers(1, 120), st.sampled_from(MODES))
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(make=st.sampled_from(KERNELS), story=st.lists(st.one_of(foreign_changes, works, crashes), max_size=12))
def test_rollback_is_the_identity_but_for_what_others_changed(make: Callable[[], FakeKernel], story: list[Any]) -> None:
    kernel, alone = make(), make()
    with state_directory() as path:
        for kind, what in story:
            if kind == "foreign":
                kernel.foreign_write(*what)
                alone.foreign_write(*what)
                continue
            wanted, at, mode = (what, None, "before") if kind == "work" else what
            with process(kernel, at, mode) as (view, _):
                if wanted is None:
                    rollback(view, path)
                else:
                    apply(view, path, wanted)
        with process(kernel) as (view, _):
            rollback(view, path)
        assert in_force(kernel) == in_force(alone)
        assert not os.path.exists(path)


def test_a_change_while_the_journal_is_flushed_is_not_overwritten(tmp_path: Any) -> None:
    path = str(tmp_path / "state" / "undo.jsonl")
    kernel = usual_kernel()
    with open_journal(path, BOOT_ID) as journal:
        steps, _ = tunables.plan_tuning(kernel, MOE)
        real = journal.intend

        def slow(tunable: str, *rest: Any) -> int:
            if tunable == "vm.dirty_ratio":
                kernel.foreign_write(VM + "dirty_ratio", "44")
            return real(tunable, *rest)

        journal.intend = slow  # type: ignore[method-assign]
        views = {view.name: view for view in tuning.apply(kernel, journal, steps)}
        assert (views["vm.dirty_ratio"].state, views["vm.dirty_ratio"].now) == ("drifted", "44")
        undo = journal.undo

        def slow_undo(seq: int) -> None:
            if getattr(journal.held.get("vm.vfs_cache_pressure"), "seq", None) == seq:
                kernel.foreign_write(VM + "vfs_cache_pressure", "77")
            undo(seq)

        journal.undo = slow_undo  # type: ignore[method-assign]
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(VM + "dirty_ratio") == "44\n"
    assert kernel.foreign_read(VM + "vfs_cache_pressure") == "77\n"


def test_a_probe_needs_its_record(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for the record, a value of unknown owner is left alone, not tried."""
    path = str(tmp_path / "state" / "undo.jsonl")
    kernel = usual_kernel()
    with open_journal(path, BOOT_ID) as journal:
        spec = next(
            item.wanted for item in tunables.plan_tuning(kernel, MOE)[0] if item.wanted.spec.name == "vm.dirty_ratio"
        )
        journal.intend("vm.dirty_ratio", spec.spec.place, spec.cell, spec.cell)
    kernel.foreign_write(VM + "dirty_ratio", "44")
    with open_journal(path, BOOT_ID) as journal:

        def full(*_: object) -> None:
            raise JournalError("full")

        monkeypatch.setattr(journal, "probe", full)
        (view,) = tuning.rollback(kernel, journal)
    assert view.state == "drifted"
    assert kernel.writes() == []
