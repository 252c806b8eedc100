from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moetuned.host.system_file import read_system_file, replace_files


def test_files_are_written_with_their_directories_and_read_back(tmp_path: Path) -> None:
    first, second = tmp_path / "a.d/x.conf", tmp_path / "b.d/y.rules"
    replace_files({str(first): "one\n", str(second): "zwei ü\n"})
    assert (read_system_file(str(first)), read_system_file(str(second))) == ("one\n", "zwei ü\n")
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"x.conf", "y.rules"}
    assert first.stat().st_mode & 0o777 == 0o644


def test_a_file_can_be_read_by_all_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_files({str(tmp_path / "x"): "1"})
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_a_file_is_replaced_and_another_removed(tmp_path: Path) -> None:
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.write_text("old")
    gone.write_text("old")
    for path in (kept, gone):
        path.with_name(f".{path.name}.new").write_text("left by one that was killed")
    replace_files({str(kept): "new", str(gone): None, str(tmp_path / "never there"): None})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"kept": "new"}


def test_when_one_file_cannot_be_written_none_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("old")
    real = os.fsync
    calls = []

    def full_disk(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        replace_files({str(first): "new", str(second): "new"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


def test_when_a_file_cannot_be_replaced_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_files({str(tmp_path / "a"): "new"})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    (tmp_path / ".x.new").symlink_to(victim)
    replace_files({str(tmp_path / "x"): "ours"})
    assert (victim.read_text(), (tmp_path / "x").read_text()) == ("theirs", "ours")


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    assert read_system_file(str(tmp_path / "none")) is None
    (tmp_path / "link").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * (257 << 10))
    (tmp_path / "directory").mkdir()
    found: dict[str, int | None] = {}
    for name in ("link", "fifo", "large", "directory"):
        try:
            read_system_file(str(tmp_path / name))
        except OSError as error:
            found[name] = error.errno
    assert found == {"link": errno.ELOOP, "fifo": errno.EINVAL, "large": errno.EFBIG, "directory": errno.EINVAL}
