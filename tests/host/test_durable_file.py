from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moetuned.host import durable_file
from moetuned.host.durable_file import (
    NotPrivateError,
    lock_directory,
    make_private_directory,
    read_private,
    remove_durably,
    replace_durably,
    write_durably,
)


def test_the_directory_is_made_private_with_its_parents(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    make_private_directory(str(directory))
    assert directory.stat().st_mode & 0o777 == 0o700
    make_private_directory(str(directory))


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_others_can_write_in_is_refused(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(NotPrivateError, match="writable by nobody else"):
        make_private_directory(str(directory))


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):  # noqa: PT011
        make_private_directory(str(tmp_path / "file"))


def test_one_holder_until_its_process_ends(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom moetuned.host.durable_file import lock_directory\nlock_directory(sys.argv[1])\n"
        "print('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError):
            lock_directory(str(tmp_path))
        holder.kill()
        holder.wait(30)
    os.close(lock_directory(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_written_bytes_replace_a_torn_end(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    write_durably(path, b"one\n", 0)
    with open(path, "ab") as file:
        file.write(b"to")
    write_durably(path, b"two\n", 4)
    assert read_private(path, 100) == b"one\ntwo\n"
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_failed_write_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = str(tmp_path / "file")
    write_durably(path, b"one\n", 0)
    real = os.pwrite

    def fails(*arguments: object) -> int:
        if call == "pwrite" and len(arguments[1]) > 1:  # type: ignore[arg-type]
            return real(arguments[0], arguments[1][:1], arguments[2])  # type: ignore[arg-type, index]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable_file.os, call, fails)
    with pytest.raises(OSError, match="No space left"):
        write_durably(path, b"two\n", 4)
    monkeypatch.undo()
    assert read_private(path, 100) == b"one\n"


def test_links_and_large_files_are_not_read(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"x" * 11)
    link.symlink_to(path)
    assert read_private(str(tmp_path / "none"), 10) == b""
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_private(str(path), 10)
    with pytest.raises(OSError, match="symbolic links"):
        read_private(str(link), 100)
    with pytest.raises(OSError, match="symbolic links"):
        write_durably(str(link), b"y", 0)
    with pytest.raises(NotPrivateError):
        read_private(str(tmp_path), 10)


def test_remove_or_keep(tmp_path: Path) -> None:
    path = tmp_path / "file"
    remove_durably(str(path))
    path.write_text("x")
    remove_durably(str(path), str(path) + ".kept")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.kept"]
    remove_durably(str(path) + ".kept")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_also_where_a_link_or_a_left_over_is_in_the_way(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    path = tmp_path / "file"
    path.symlink_to(theirs)
    (tmp_path / "file.new").symlink_to(theirs)
    replace_durably(str(path), b"ours")
    assert path.read_bytes() == b"ours"
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert theirs.read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == ["file", "theirs"]
