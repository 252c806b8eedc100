from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moetuned.host import swap_files
from moetuned.host.swap_files import (
    create_file,
    directory_problem,
    fill_file,
    flush_file,
    is_swapped_on,
    look_at_file,
    move_into_place,
    remove_file,
)
from moetuned.host.swap_signature import SwapError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the files must be root's")


def test_nothing_is_there(tmp_path: Path) -> None:
    assert look_at_file(str(tmp_path / "absent")) is None
    with pytest.raises(NotADirectoryError):
        look_at_file("/dev/null/x")


def test_a_new_file_is_private_and_takes_no_place_of_another(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    old = os.umask(0)
    try:
        made = create_file(path)
    finally:
        os.umask(old)
    assert made == look_at_file(path)
    assert (made.mode, made.size_bytes, made.regular, made.uuid) == (0o600, 0, True, None)
    assert made.inode == os.stat(path).st_ino
    with pytest.raises(FileExistsError):
        create_file(path)
    os.symlink("/etc/passwd", tmp_path / "link")
    with pytest.raises(FileExistsError):
        create_file(str(tmp_path / "link"))


@pytest.mark.parametrize("kind", ["link", "directory", "fifo", "dangling"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "dangling":
        path.symlink_to("absent")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    look = look_at_file(str(path))
    assert look is not None
    assert not look.regular


def test_a_filled_file_has_all_its_blocks_and_is_not_on(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    create_file(path)
    fill_file(path, 1 << 20, copy_on_write=False)
    flush_file(path)
    status = os.stat(path)
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20
    assert not is_swapped_on(path)
    assert os.stat(path).st_size == 1 << 20


def test_a_file_system_that_gives_holes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "file")
    create_file(path)
    monkeypatch.setattr(
        swap_files.os, "posix_fallocate", lambda descriptor, offset, size: os.ftruncate(descriptor, size)
    )
    with pytest.raises(SwapError, match="fewer blocks"):
        fill_file(path, 1 << 20, copy_on_write=False)


def test_moving_into_place_replaces_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("ours")
    second.write_text("theirs")
    with pytest.raises(FileExistsError):
        move_into_place(str(first), str(second))
    assert second.read_text() == "theirs"
    second.unlink()
    move_into_place(str(first), str(second))
    assert (second.read_text(), first.exists()) == ("ours", False)
    with pytest.raises(FileNotFoundError):
        move_into_place(str(first), str(tmp_path / "third"))


def test_removing_twice_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    remove_file(str(path))
    remove_file(str(path))
    assert not path.exists()


def test_whether_it_is_on_is_told_by_the_kernels_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 8192)

    def answers(number: int) -> None:
        def fallocate(*_: int) -> int:
            swap_files.ctypes.set_errno(number)
            return -1 if number else 0

        monkeypatch.setattr(swap_files, "_fallocate", fallocate)

    answers(errno.ETXTBSY)
    assert is_swapped_on(str(path))
    for number in (0, errno.ENOSPC):
        answers(number)
        assert not is_swapped_on(str(path))
    answers(errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        is_swapped_on(str(path))


@as_root
def test_directories_that_may_hold_a_swap_file(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir(mode=0o755)
    assert directory_problem(str(good)) is None
    assert "does not exist" in (directory_problem(str(good / "absent")) or "")


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_directories_that_others_can_write_in(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(mode)
    assert "may be written by others" in (directory_problem(str(directory)) or "")
    below = directory / "below"
    below.mkdir()
    # In a sticky directory nobody can rename what is root's.
    assert (directory_problem(str(below)) is None) == bool(mode & 0o1000)


@as_root
def test_directories_of_somebody_else_also_behind_a_link(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "below").mkdir(parents=True)
    os.chown(theirs, 12345, 0)
    (tmp_path / "link").symlink_to(theirs / "below")
    for name in ("theirs", "theirs/below", "link"):
        assert "belongs to user 12345" in (directory_problem(str(tmp_path / name)) or "")
