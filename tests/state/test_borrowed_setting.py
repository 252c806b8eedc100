"""A setting borrowed for a moment: always as it was afterwards, whatever fails or is killed in between."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, add_disk, usual_kernel

from moetuned.schema.tunable import Cell, Codec, Place
from moetuned.state import undo_journal
from moetuned.state.borrowed_setting import (
    LEFT,
    Borrowed,
    BorrowError,
    borrow,
    clear_up,
    explain,
    give_back,
    journal_path,
    look,
    open_borrowed,
)
from moetuned.state.undo_journal import JournalError, UndoJournal, open_journal, read_journal

PATH = "/sys/block/vda/bdi/read_ahead_kb"
REAL = "/sys/devices/virtual/bdi/254:0/read_ahead_kb"
PLACE = Place(PATH, Codec.INTEGER, taken_at_open=True)
NAME = "read_ahead_kb vda"


@pytest.fixture
def kernel() -> FakeKernel:
    made = usual_kernel()
    add_disk(made, "vda", "254:0", 8192, "/models")
    return made


@pytest.fixture
def main(tmp_path: Path) -> str:
    return str(tmp_path / "state/undo.jsonl")


def opened(main: str) -> UndoJournal:
    return open_journal(journal_path(main), BOOT_ID)


def test_the_value_stands_there_only_while_it_is_used(kernel: FakeKernel, main: str) -> None:
    with opened(main) as journal:
        seen = borrow(kernel, journal, NAME, PLACE, "64", lambda: kernel.foreign_read(REAL))
        assert (seen, kernel.foreign_read(REAL), journal.held) == ("64\n", "8192\n", {})
        journal.tidy()
    assert not os.path.exists(journal_path(main))


def test_the_original_is_on_the_disk_before_the_write(kernel: FakeKernel, main: str) -> None:
    with opened(main) as journal:
        held = borrow(kernel, journal, NAME, PLACE, "64", lambda: read_journal(journal_path(main), BOOT_ID).held[NAME])
    assert (held.original.value, held.intended.value) == ("8192", "64")


def test_the_present_value_needs_no_write(kernel: FakeKernel, main: str) -> None:
    kernel.mount_read_only("/sys")
    with opened(main) as journal:
        assert borrow(kernel, journal, NAME, PLACE, "8192", lambda: "used") == "used"
    assert not os.path.exists(journal_path(main))


def test_what_the_use_raises_comes_through_and_all_is_put_back(kernel: FakeKernel, main: str) -> None:
    def fail() -> None:
        raise FileNotFoundError("model")

    with opened(main) as journal:
        with pytest.raises(FileNotFoundError):
            borrow(kernel, journal, NAME, PLACE, "64", fail)
        assert (kernel.foreign_read(REAL), journal.held) == ("8192\n", {})


def test_a_value_that_the_kernel_changes_is_refused(kernel: FakeKernel, main: str) -> None:
    with opened(main) as journal:
        with pytest.raises(BorrowError, match="the kernel made 64 of 66"):
            borrow(kernel, journal, NAME, PLACE, "66", lambda: None)
        assert (kernel.foreign_read(REAL), journal.held) == ("8192\n", {})


def test_read_only_is_one_sentence(kernel: FakeKernel, main: str) -> None:
    kernel.mount_read_only("/sys")
    with opened(main) as journal, pytest.raises(BorrowError, match="read-only"):
        borrow(kernel, journal, NAME, PLACE, "64", lambda: None)
    assert read_journal(journal_path(main), BOOT_ID).held == {}


def test_an_unknown_setting_is_one_sentence(kernel: FakeKernel, main: str) -> None:
    nowhere = Place("/sys/block/vdz/bdi/read_ahead_kb", Codec.INTEGER)
    with opened(main) as journal, pytest.raises(BorrowError, match="vdz"):
        borrow(kernel, journal, NAME, nowhere, "64", lambda: None)


def test_somebody_elses_value_of_that_moment_is_left_alone(kernel: FakeKernel, main: str) -> None:
    with opened(main) as journal:
        borrow(kernel, journal, NAME, PLACE, "64", lambda: kernel.foreign_write(REAL, "512"))
        assert (kernel.foreign_read(REAL), journal.held) == ("512\n", {})


def test_without_a_journal_nothing_is_written(kernel: FakeKernel, main: str) -> None:
    with opened(main) as journal:
        journal.close()
        with pytest.raises(JournalError):
            borrow(kernel, journal, NAME, PLACE, "64", lambda: None)
    assert kernel.foreign_read(REAL) == "8192\n"


def leave_borrowed(kernel: FakeKernel, main: str) -> None:
    """As a process that was killed while the value stood there: journal and kernel as they are in that moment."""
    with opened(main) as journal:
        kept = borrow(kernel, journal, NAME, PLACE, "64", lambda: Path(journal_path(main)).read_bytes())
    Path(journal_path(main)).write_bytes(kept)
    kernel.foreign_write(REAL, "64")


def test_what_a_killed_process_left_is_given_back(kernel: FakeKernel, main: str) -> None:
    leave_borrowed(kernel, main)
    (view,) = give_back(kernel, main, BOOT_ID)
    assert (view.name, view.state, view.now, kernel.foreign_read(REAL)) == (NAME, "restored", "8192", "8192\n")
    assert not os.path.exists(journal_path(main))
    assert give_back(kernel, main, BOOT_ID) == ()


def test_killed_before_the_write_there_is_nothing_to_write(kernel: FakeKernel, main: str) -> None:
    leave_borrowed(kernel, main)
    kernel.foreign_write(REAL, "8192")
    assert [view.now for view in give_back(kernel, main, BOOT_ID)] == ["8192"]


class Death:
    """From the chosen step on (a write to the kernel or to the journal) nothing that is written arrives any more."""

    def __init__(self, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.left = at
        kernel_write, journal_write = kernel.write_text, undo_journal.write_durably

        def to_kernel(path: str, text: str) -> None:
            if self._alive():
                kernel_write(path, text)

        def to_journal(path: str, data: bytes, offset: int) -> None:
            if self._alive():
                journal_write(path, data, offset)

        monkeypatch.setattr(kernel, "write_text", to_kernel)
        monkeypatch.setattr(undo_journal, "write_durably", to_journal)

    def _alive(self) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("at", range(5))
def test_killed_at_any_step_it_can_be_given_back(kernel: FakeKernel, main: str, at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        death = Death(kernel, patch, at)
        with opened(main) as journal, contextlib.suppress(BorrowError):
            borrow(kernel, journal, NAME, PLACE, "64", lambda: None)
        assert (death.left < 0) == (at < 4), "the steps are: journal, kernel, kernel, journal"
    assert kernel.foreign_read(REAL) == ("64\n" if at == 2 else "8192\n")
    give_back(kernel, main, BOOT_ID)
    assert kernel.foreign_read(REAL) == "8192\n"
    assert read_journal(journal_path(main), BOOT_ID).held == {}


def test_what_somebody_chose_since_is_left_alone(kernel: FakeKernel, main: str) -> None:
    leave_borrowed(kernel, main)
    kernel.foreign_write(REAL, "256")
    (view,) = give_back(kernel, main, BOOT_ID)
    assert (view.state, kernel.foreign_read(REAL)) == ("drifted", "256\n")


def test_the_next_measurement_clears_up_by_itself(kernel: FakeKernel, main: str) -> None:
    leave_borrowed(kernel, main)
    with opened(main) as journal:
        assert [view.state for view in clear_up(kernel, journal)] == ["restored"]
        assert borrow(kernel, journal, NAME, PLACE, "128", lambda: kernel.foreign_read(REAL)) == "128\n"
    assert kernel.foreign_read(REAL) == "8192\n"


def test_a_borrower_that_still_runs_is_left_alone(kernel: FakeKernel, main: str) -> None:
    leave_borrowed(kernel, main)
    with opened(main):
        assert give_back(kernel, main, BOOT_ID) == ()
    assert kernel.foreign_read(REAL) == "64\n"


def test_a_damaged_journal_is_said_and_kept(kernel: FakeKernel, main: str) -> None:
    leave_borrowed(kernel, main)
    path = Path(journal_path(main))
    path.write_bytes(b"{rubbish}\n" + path.read_bytes())
    with pytest.raises(JournalError, match="damaged"):
        give_back(kernel, main, BOOT_ID)
    assert path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_until_it_is_put_back(tmp_path: Path, number: signal.Signals) -> None:
    """In a process of its own: it signals itself in the very moment, and would end there."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from fakes.fake_kernel import BOOT_ID, add_disk, usual_kernel
from moetuned.schema.tunable import Codec, Place
from moetuned.state.borrowed_setting import borrow, journal_path
from moetuned.state.undo_journal import open_journal
kernel = usual_kernel()
add_disk(kernel, "vda", "254:0", 8192, "/models")
writes = kernel.write_text
def told(path, text):
    writes(path, text)
    print(text.strip(), flush=True)
kernel.write_text = told
with open_journal(journal_path({str(tmp_path / "state/undo.jsonl")!r}), BOOT_ID) as journal:
    borrow(kernel, journal, "read_ahead_kb vda", Place({PATH!r}, Codec.INTEGER), "64", lambda: os.kill(os.getpid(), {int(number)}))
print("not reached")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["64", "8192"], done.stderr
    assert done.returncode != 0


def test_the_directory_of_both_journals_is_private(main: str) -> None:
    with open_borrowed(main, BOOT_ID):
        assert os.stat(os.path.dirname(main)).st_mode & 0o777 == 0o700
    os.chmod(os.path.dirname(main), 0o777)
    with pytest.raises(JournalError, match="writable by nobody else"):
        open_borrowed(main, BOOT_ID)


def test_what_stands_borrowed_is_seen_without_taking_anything(kernel: FakeKernel, main: str) -> None:
    assert look(kernel, main, BOOT_ID) == Borrowed()
    with opened(main) as journal:
        seen = borrow(kernel, journal, NAME, PLACE, "64", lambda: look(kernel, main, BOOT_ID))
        assert ([entry.tunable for entry in seen.held], seen.alive) == ([NAME], True)
        assert look(kernel, main, BOOT_ID) == Borrowed((), alive=True)
    with opened(main) as journal:
        journal.intend(NAME, PLACE, Cell(PATH, "8192"), Cell(PATH, "64"))
    assert look(kernel, main, BOOT_ID).held == (), "it was killed before the write"
    kernel.foreign_write(REAL, "64")
    left = look(kernel, main, BOOT_ID)
    assert ([entry.original.value for entry in left.held], left.alive) == (["8192"], False)
    (view,) = explain((), (), left)
    assert (view.state, view.now, view.wanted, view.detail) == ("planned", "64", "8192", LEFT)
