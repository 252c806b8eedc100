"""A file that others read: whole at every moment, readable, and never written where a link leads."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from moetuned.host import published_file
from moetuned.host.published_file import publish, unpublish


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "node-exporter"
    directory.mkdir(mode=0o755)
    return directory


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def test_it_is_written_readable_by_all_and_alone(place: Path) -> None:
    path = place / "moetuned.prom"
    mask = os.umask(0o077)
    try:
        identity = publish(str(path), b"a 1\n")
    finally:
        os.umask(mask)
    status = path.stat()
    assert path.read_bytes() == b"a 1\n"
    assert stat.S_IMODE(status.st_mode) == 0o644
    assert identity == (status.st_dev, status.st_ino)
    assert names(place) == ["moetuned.prom"]


def test_who_reads_the_old_one_goes_on_reading_it(place: Path) -> None:
    path = place / "moetuned.prom"
    publish(str(path), b"old\n")
    with path.open("rb") as reading:
        publish(str(path), b"new\n")
        assert reading.read() == b"old\n"
    assert path.read_bytes() == b"new\n"


def test_what_a_killed_one_left_is_no_hindrance(place: Path) -> None:
    (place / ".moetuned.prom.new").write_bytes(b"half")
    publish(str(place / "moetuned.prom"), b"a 1\n")
    assert names(place) == ["moetuned.prom"]


def test_links_are_replaced_and_not_followed(place: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (place / "moetuned.prom").symlink_to(victim)
    (place / ".moetuned.prom.new").symlink_to(victim)
    publish(str(place / "moetuned.prom"), b"a 1\n")
    assert victim.read_bytes() == b"precious"
    assert not (place / "moetuned.prom").is_symlink()


def test_a_link_on_the_way_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(place)
    path = str(tmp_path / "elsewhere" / "moetuned.prom")
    with pytest.raises(
        OSError, match=rf"{tmp_path}/elsewhere is a link; name the directory that it leads to"
    ) as caught:
        publish(path, b"a 1\n")
    assert (caught.value.errno, caught.value.filename) == (errno.ELOOP, path)
    assert names(place) == []


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"there is no directory {tmp_path}/none"):
        publish(str(tmp_path / "none" / "below" / "moetuned.prom"), b"")


def test_a_file_in_place_of_a_directory(place: Path) -> None:
    (place / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        publish(str(place / "file" / "moetuned.prom"), b"")


def test_a_directory_that_everybody_may_write_to_is_refused(place: Path) -> None:
    place.chmod(0o1777)
    with pytest.raises(PermissionError, match=f"everybody may write to {place}; choose another directory"):
        publish(str(place / "moetuned.prom"), b"")
    place.chmod(0o775)
    publish(str(place / "moetuned.prom"), b"")


def test_a_directory_of_that_name_stays(place: Path) -> None:
    (place / "moetuned.prom").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        publish(str(place / "moetuned.prom"), b"a 1\n")
    assert caught.value.filename == str(place / "moetuned.prom")
    assert names(place) == ["moetuned.prom"]


def test_a_failure_leaves_the_old_one_and_nothing_beside_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "moetuned.prom"
    publish(str(path), b"old\n")

    def full(*_arguments: object, **_keys: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(published_file.os, "fchmod", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        publish(str(path), b"new\n")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old\n"
    assert names(place) == ["moetuned.prom"]


def test_only_the_one_that_was_made_is_removed(place: Path) -> None:
    path = str(place / "moetuned.prom")
    first = publish(path, b"1")
    second = publish(path, b"2")
    unpublish(path, first)
    assert names(place) == ["moetuned.prom"]
    unpublish(path, second)
    assert names(place) == []
    unpublish(path, second)


def test_no_descriptor_is_left_open(place: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (place / "moetuned.prom", place / "none" / "moetuned.prom"):
        try:
            unpublish(str(path), publish(str(path), b"x"))
        except OSError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before
