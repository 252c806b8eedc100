"""Every crash and every interleaving: whatever happens, what was there before moetuned, or what others put there, comes back."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fakes.fake_kernel import BOOT_ID, Choice, FakeKernel, Number, usual_kernel
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tuning_scenes import MIN_FREE, MOE, OBSERVE, QUEUE, THP, VM, kernel_with_disk, steps_for

from moetuned.host import durable_file
from moetuned.schema.config import Profile, Tuning
from moetuned.state import tuning
from moetuned.state.undo_journal import JournalError, open_journal, read_journal

OTHER = Tuning(
    profile=Profile.MOE_OFFLOAD,
    thp="madvise",
    sysctl={"vm.dirty_ratio": 7, "vm.dirty_background_bytes": 4096, "vm.vfs_cache_pressure": "at-least 90"},
    scheduler="bfq",
)
OWNED = Tuning(
    profile=Profile.MOE_OFFLOAD, sysctl={"vm.min_free_kbytes": 100000}, scheduler="mq-deadline", nr_requests=200
)
CLOSE = Tuning(profile=Profile.MOE_OFFLOAD, scheduler="mq-deadline", nr_requests=100)
ALONE = Tuning(profile=Profile.MOE_OFFLOAD, thp="keep", sysctl={"vm.min_free_kbytes": 50000}, nr_requests=100)
"""What other settings change along with themselves, without those; a length that fits every scheduler."""
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


def apply(kernel: DyingKernel, path: str, wanted: Tuning, *, by_hand: bool = False) -> None:
    with open_journal(path, BOOT_ID) as journal:
        tuning.apply(kernel, journal, steps_for(kernel, wanted, journal), by_hand=by_hand)


def look(kernel: DyingKernel, path: str, wanted: Tuning) -> None:
    """What the daemon does when it sees the same drift for the second time."""
    with open_journal(path, BOOT_ID) as journal:
        steps = steps_for(kernel, wanted, journal)
        seen = tuning.verify(kernel, journal.held, steps, yields=journal.yields)
        tuning.confirm_drift(kernel, journal, steps, [view.name for view in seen if view.state == "drifted"])


def rollback(kernel: DyingKernel, path: str) -> None:
    with open_journal(path, BOOT_ID) as journal:
        tuning.rollback(kernel, journal)


def kernel_with_bytes() -> FakeKernel:
    kernel = usual_kernel()
    kernel.foreign_write(VM + "dirty_bytes", "1048576")
    return kernel


def kernel_that_adjusts() -> FakeKernel:
    kernel = usual_kernel()
    kernel.files[VM + "vfs_cache_pressure"] = Number(100, adjust=lambda value: 64 if value == 50 else value)
    kernel.files[VM + "overcommit_memory"] = Number(0, adjust=lambda value: value * 2)
    return kernel


def kernel_with_little_kept_free() -> FakeKernel:
    """Less than the kernel itself would keep: it makes another value of it in both directions."""
    kernel = usual_kernel()
    kernel.foreign_write(MIN_FREE, "10000")
    return kernel


KERNELS = [usual_kernel, kernel_with_bytes, kernel_that_adjusts, kernel_with_little_kept_free, kernel_with_disk]


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


def apply_owned(kernel: DyingKernel, path: str) -> None:
    apply(kernel, path, OWNED)


def apply_close(kernel: DyingKernel, path: str) -> None:
    apply(kernel, path, CLOSE)


def apply_alone(kernel: DyingKernel, path: str) -> None:
    apply(kernel, path, ALONE)


WORK: dict[str, list[Callable[[DyingKernel, str], None]]] = {
    "apply": [apply_moe],
    "another configuration": [apply_moe, apply_other],
    "rollback": [apply_moe, rollback],
    "apply with side effects that are tunables": [apply_owned],
    "side effects become tunables": [apply_moe, apply_owned],
    "tunables become side effects": [apply_owned, apply_other],
    "rollback of side effects that are tunables": [apply_owned, rollback],
    "side effects outlive what changes them": [apply_other, apply_owned, apply_alone],
    "and a disk's queue its scheduler": [apply_other, apply_close, apply_alone],
}

BESIDE = (MIN_FREE, QUEUE + "nr_requests", QUEUE + "wbt_lat_usec")
"""What the kernel itself changes along with other settings: for a moment it may be anything."""

RECOVERIES = (
    [rollback],
    [apply_moe, rollback],
    [apply_other, apply_moe, rollback],
    [apply_owned, rollback],
    [apply_alone, rollback],
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("make", KERNELS)
def test_a_crash_at_every_step_leaves_original_or_ours_and_rollback_brings_all_back(
    make: Callable[[], FakeKernel], name: str, mode: str
) -> None:
    work = WORK[name]
    allowed: dict[str, set[str]] = {}
    kernel = make()
    beside = {kernel.follow(each) for each in BESIDE}
    originals = in_force(kernel)
    with state_directory() as path:
        for run in [*work, apply_moe, apply_other, apply_owned, apply_alone]:
            for key, value in in_force(kernel).items():
                allowed.setdefault(key, set()).add(value)
            with process(kernel) as (view, _):
                run(view, path)
        for key, value in in_force(kernel).items():
            allowed[key].add(value)
    total = steps_of(make, work, len(work) - 1)
    assert total > 20
    for at in range(1, total + 1):
        # Over the modes each state meets three of them: the one after a step is the one before the next.
        recovery = RECOVERIES[(at + 2 * MODES.index(mode)) % len(RECOVERIES)]
        kernel = make()
        with state_directory() as path:
            for run in work[:-1]:
                with process(kernel) as (view, _):
                    run(view, path)
            with process(kernel, at, mode) as (view, fuse):
                work[-1](view, path)
            assert fuse.dead
            for key, value in in_force(kernel).items():
                assert value in allowed[key] or key in beside, (at, key)
            for run in recovery:
                with process(kernel) as (view, _):
                    run(view, path)
            assert in_force(kernel) == originals, (at, recovery)
            assert not os.path.exists(path), (at, recovery)


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
    VM + "dirty_background_ratio": ("7", "44"),
    VM + "dirty_background_bytes": ("65536", "131072"),
    VM + "vfs_cache_pressure": ("77", "30"),
    THP: ("always", "always"),
    MIN_FREE: ("30000", "90000"),
    QUEUE + "scheduler": ("kyber", "kyber"),
    QUEUE + "nr_requests": ("99", "17"),
    QUEUE + "wbt_lat_usec": ("555", "777"),
}

ALWAYS, LITTLE = ("foreign", (THP, "always")), ("foreign", (MIN_FREE, "30000"))
KYBER, SHORT = ("foreign", (QUEUE + "scheduler", "kyber")), ("foreign", (QUEUE + "nr_requests", "99"))

foreign_changes = st.tuples(
    st.just("foreign"),
    st.sampled_from(sorted(FOREIGN)).flatmap(lambda path: st.tuples(st.just(path), st.sampled_from(FOREIGN[path]))),
)
wishes = st.sampled_from([MOE, OTHER, OWNED, CLOSE, ALONE, OBSERVE])
works = st.one_of(
    st.tuples(st.just("apply"), wishes),
    st.tuples(st.just("by hand"), wishes),
    st.tuples(st.just("look"), wishes),
    st.tuples(st.just("rollback"), st.none()),
)
crashes = st.tuples(st.just("crash"), st.tuples(works, st.integers(1, 250), st.sampled_from(MODES)))


def work(kernel: DyingKernel, path: str, kind: str, wanted: Any) -> None:
    if kind == "rollback":
        rollback(kernel, path)
    elif kind == "look":
        look(kernel, path, wanted)
    else:
        apply(kernel, path, wanted, by_hand=kind == "by hand")


def cannot_be_told(path: str, changed: str) -> bool:
    """Two changes by somebody else that leave no trace of what the kernel made of them, or would have made.

    A process ended in the very moment in which the kernel changed something along with a setting, and they change that, too, before the next
    process looks: it is taken for the kernel's; so is what the kernel makes of it when they put the setting itself back in the moment
    of an undo. And huge pages raise vm.min_free_kbytes to what they need, which does not
    show where moetuned has raised it further.
    """
    held = read_journal(path, BOOT_ID).held
    unseen = [entry for entry in held.values() if not entry.settled or entry.undoing]
    return (
        any(side.place.path == changed for entry in unseen for side in entry.beside)
        or any(entry.undoing and entry.beside and entry.place.path == changed for entry in unseen)
        or (changed == THP and "vm.min_free_kbytes" in held)
    )


def somebody_changes(kernel: FakeKernel, alone: FakeKernel, where: str, text: str) -> None:
    """The same change on both. What the kernel changes along with it is theirs: it depends on what they change it from.

    So the machine without moetuned is given that first.
    """
    node = kernel.files[where]
    stands = node.chosen if isinstance(node, Choice) else None
    with contextlib.suppress(OSError):  # a queue too long for the scheduler that is chosen
        kernel.foreign_write(where, text)
        if stands is not None:
            alone.foreign_write(where, stands)
        alone.foreign_write(where, text)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(make=st.sampled_from(KERNELS), story=st.lists(st.one_of(foreign_changes, works, crashes), max_size=12))
@example(kernel_with_disk, [("apply", MOE), ("crash", (("apply", OTHER), 21, "after")), ("apply", OWNED)])
@example(kernel_with_disk, [("apply", OTHER), ("apply", OWNED), ("crash", (("apply", ALONE), 21, "before"))])
@example(kernel_with_disk, [("apply", OTHER), ("apply", OWNED), ("crash", (("apply", ALONE), 39, "before"))])
@example(kernel_with_disk, [("apply", OWNED), ("crash", (("apply", ALONE), 31, "after")), ("look", MOE)])
@example(usual_kernel, [ALWAYS, LITTLE, ("apply", OTHER), ALWAYS])
@example(usual_kernel, [ALWAYS, LITTLE, ("apply", OTHER), ALWAYS, ("look", OTHER)])
@example(kernel_with_disk, [KYBER, SHORT, ("apply", OTHER), KYBER])
@example(kernel_with_disk, [KYBER, SHORT, ("apply", OTHER), KYBER, ("look", OTHER)])
@example(kernel_with_disk, [KYBER, SHORT, ("apply", OTHER), KYBER, ("apply", OTHER)])
@example(kernel_with_disk, [("apply", OWNED), SHORT, ("apply", ALONE), ("apply", OWNED)])
def test_rollback_is_the_identity_but_for_what_others_changed(make: Callable[[], FakeKernel], story: list[Any]) -> None:
    kernel, alone = make(), make()
    with state_directory() as path:
        for kind, what in story:
            if kind == "foreign":
                where = kernel.follow(what[0])
                if where in kernel.files and not cannot_be_told(path, what[0]):
                    somebody_changes(kernel, alone, where, what[1])
                continue
            (kind, wanted), at, mode = what if kind == "crash" else ((kind, what), None, "before")
            with process(kernel, at, mode) as (view, _):
                work(view, path, kind, wanted)
        with process(kernel) as (view, _):
            rollback(view, path)
        assert in_force(kernel) == in_force(alone)
        left = read_journal(path, BOOT_ID)
        assert (left.held, left.problems) == ({}, ())
        assert os.path.exists(path) == bool(left.yields)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=st.lists(st.one_of(foreign_changes, works, crashes), max_size=8), wanted=wishes)
def test_what_was_yielded_is_never_written_until_somebody_asks(story: list[Any], wanted: Tuning) -> None:
    kernel = kernel_with_disk()
    with state_directory() as path:
        for kind, what in story:
            if kind == "foreign":
                with contextlib.suppress(OSError):
                    kernel.foreign_write(kernel.follow(what[0]), what[1])
                continue
            (kind, _), at, mode = what if kind == "crash" else ((kind, what), None, "before")
            yields = read_journal(path, BOOT_ID).yields
            count = len(kernel.writes())
            with process(kernel, at, mode) as (view, _):
                work(view, path, "rollback" if kind == "by hand" else kind, wanted)
            written = {where for where, _ in kernel.writes()[count:]}
            for record in yields.values():
                if record.place.path not in BESIDE:
                    assert written.isdisjoint({record.place.path, record.place.twin_path}), record


def apply_by_hand(kernel: DyingKernel, path: str) -> None:
    apply(kernel, path, MOE, by_hand=True)


def look_again(kernel: DyingKernel, path: str) -> None:
    look(kernel, path, MOE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("work", [look_again, rollback, apply_by_hand])
def test_a_crash_at_every_step_while_somebody_elses_change_is_written_down(
    work: Callable[[DyingKernel, str], None], mode: str
) -> None:
    """Theirs is never written over, by no later start either; all else comes back."""
    at, died = 0, True
    while died:
        at += 1
        kernel = usual_kernel()
        theirs = in_force(kernel) | {VM + "vfs_cache_pressure": "77\n"}
        with state_directory() as path:
            with process(kernel) as (view, _):
                apply_moe(view, path)
            kernel.foreign_write(VM + "vfs_cache_pressure", "77")
            with process(kernel, at, mode) as (view, fuse):
                work(view, path)
            died = fuse.dead
            for run in (rollback, apply_moe, rollback, apply_moe, rollback):
                with process(kernel) as (view, _):
                    run(view, path)
                assert kernel.foreign_read(VM + "vfs_cache_pressure") == "77\n", at
            assert in_force(kernel) == theirs, at
            left = read_journal(path, BOOT_ID)
            assert (left.held, left.problems, list(left.yields)) == ({}, (), ["vm.vfs_cache_pressure"]), at
    assert at > 10


@pytest.mark.parametrize("mode", MODES)
def test_a_crash_while_a_person_takes_a_setting_up_again(mode: str) -> None:
    at, died = 0, True
    while died:
        at += 1
        kernel = usual_kernel()
        theirs = in_force(kernel) | {VM + "vfs_cache_pressure": "77\n"}
        with state_directory() as path:
            with process(kernel) as (view, _):
                apply_moe(view, path)
            kernel.foreign_write(VM + "vfs_cache_pressure", "77")
            with process(kernel) as (view, _):
                look_again(view, path)
            with process(kernel, at, mode) as (view, fuse):
                apply_by_hand(view, path)
            died = fuse.dead
            with process(kernel) as (view, _):
                rollback(view, path)
            assert in_force(kernel) == theirs, at
    assert at > 10


def test_what_an_interrupted_undo_changed_along_with_it_is_nobodys_drift(tmp_path: Any) -> None:
    path = str(tmp_path / "state" / "undo.jsonl")
    kernel = kernel_with_disk()
    with process(kernel) as (view, _):
        apply_owned(view, path)
    with process(kernel, 31, "after") as (view, _):
        apply_alone(view, path)
    with open_journal(path, BOOT_ID) as journal:
        assert journal.held["scheduler vda"].undoing
        assert kernel.foreign_read(kernel.follow(QUEUE + "nr_requests")) == "128\n"
        for wanted in (OWNED, ALONE, MOE):
            seen = tuning.verify(kernel, journal.held, steps_for(kernel, wanted, journal))
            states = {view.name: view.state for view in seen}
            assert "drifted" not in states.values(), wanted
        tuning.confirm_drift(kernel, journal, steps_for(kernel, MOE, journal), ["nr_requests vda"])
        assert (journal.yields, "nr_requests vda" in journal.held) == ({}, True)


@pytest.mark.parametrize(("before", "last"), [(apply_owned, apply_alone), (apply_other, apply_owned)])
def test_a_scheduler_that_somebody_chose_after_a_crash_keeps_its_queue(
    before: Callable[[DyingKernel, str], None], last: Callable[[DyingKernel, str], None]
) -> None:
    for at in range(1, steps_of(kernel_with_disk, [before, last], 1) + 1):
        kernel, alone = kernel_with_disk(), kernel_with_disk()
        with state_directory() as path:
            with process(kernel) as (view, _):
                before(view, path)
            with process(kernel, at, "after") as (view, _):
                last(view, path)
            for each in (kernel, alone):
                each.foreign_write(each.follow(QUEUE + "scheduler"), "kyber")
            with process(kernel) as (view, _):
                rollback(view, path)
        assert in_force(kernel) == in_force(alone), at


def test_a_full_disk_after_a_crash_takes_nothing_for_an_original(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel made of the interrupted write cannot be written down: then nothing is set, and all comes back."""
    path = str(tmp_path / "state" / "undo.jsonl")
    kernel = kernel_with_disk()
    originals = in_force(kernel)
    with process(kernel) as (view, _):
        apply_moe(view, path)
    with process(kernel, 21, "after") as (view, _):
        apply_other(view, path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_journal(path, BOOT_ID) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(durable_file.os, "pwrite", full)
            views = tuning.apply(kernel, journal, steps_for(kernel, CLOSE, journal))
        details = [view.detail for view in views if view.state == "failed"]
        assert "cannot be written (No space left on device)" in details[0]
        assert set(details[1:]) == {"not tried: the undo journal cannot be written"}
        assert list(journal.held)[-1] == "scheduler vda"
        tuning.apply(kernel, journal, steps_for(kernel, CLOSE, journal))
        assert journal.held["nr_requests vda"].original.value == "64"
        tuning.rollback(kernel, journal)
    assert in_force(kernel) == originals


def test_a_change_while_the_journal_is_flushed_is_not_overwritten(tmp_path: Any) -> None:
    path = str(tmp_path / "state" / "undo.jsonl")
    kernel = usual_kernel()
    with open_journal(path, BOOT_ID) as journal:
        steps = steps_for(kernel)
        real = journal.intend

        def slow(tunable: str, *rest: Any, **more: Any) -> int:
            if tunable == "vm.dirty_ratio":
                kernel.foreign_write(VM + "dirty_ratio", "44")
            return real(tunable, *rest, **more)

        journal.intend = slow  # type: ignore[method-assign]
        views = {view.name: view for view in tuning.apply(kernel, journal, steps)}
        assert (views["vm.dirty_ratio"].state, views["vm.dirty_ratio"].now) == ("drifted", "44")
        undo = journal.undo

        def slow_undo(seq: int, *beside: Any) -> None:
            if getattr(journal.held.get("vm.vfs_cache_pressure"), "seq", None) == seq:
                kernel.foreign_write(VM + "vfs_cache_pressure", "77")
            undo(seq, *beside)

        journal.undo = slow_undo  # type: ignore[method-assign]
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(VM + "dirty_ratio") == "44\n"
    assert kernel.foreign_read(VM + "vfs_cache_pressure") == "77\n"


def test_a_probe_needs_its_record(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for the record, a value of unknown owner is left alone, not tried."""
    path = str(tmp_path / "state" / "undo.jsonl")
    kernel = usual_kernel()
    with open_journal(path, BOOT_ID) as journal:
        spec = next(item.wanted for item in steps_for(kernel) if item.wanted.spec.name == "vm.dirty_ratio")
        journal.intend("vm.dirty_ratio", spec.spec.place, spec.cell, spec.cell)
    kernel.foreign_write(VM + "dirty_ratio", "44")
    with open_journal(path, BOOT_ID) as journal:

        def full(*_: object) -> None:
            raise JournalError("full")

        monkeypatch.setattr(journal, "probe", full)
        (view,) = tuning.rollback(kernel, journal)
    assert view.state == "drifted"
    assert kernel.writes() == []
