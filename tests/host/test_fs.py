"""The real files, as they are and under the root of a fixture."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.fs import READ_LIMIT_BYTES, HostFS, RealFS


@pytest.fixture
def fs(tmp_path: Path) -> HostFS:
    (tmp_path / "sys/block").mkdir(parents=True)
    return RealFS(f"{tmp_path}/")


def test_the_real_proc() -> None:
    assert RealFS().read_text("/proc/self/stat").startswith(f"{os.getpid()} (")
    assert RealFS().resolve_link("/proc/self") == f"/proc/{os.getpid()}"
    assert RealFS().exists("/proc/self/exe")


def test_a_file_under_the_root_and_never_outside(fs: HostFS, tmp_path: Path) -> None:
    (tmp_path / "sys/block/name").write_text("sda\n")
    assert fs.read_text("/sys/block/name") == "sda\n"
    assert fs.exists("/sys/block/name")
    assert not fs.exists("/proc/self/stat")
    with pytest.raises(FileNotFoundError):
        fs.read_text("/proc/self/stat")


@pytest.mark.parametrize("path", ["sys/block", "", "./sys", "~/x"])
def test_a_path_that_is_not_absolute_is_a_mistake_of_the_caller(fs: HostFS, path: str) -> None:
    for use in (fs.read_text, fs.exists, fs.list_directory, fs.resolve_link, lambda one: fs.write_text(one, "1")):
        with pytest.raises(ValueError, match="is not an absolute path"):
            use(path)


def test_reading_stops_at_the_limit(fs: HostFS, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 200_000)
    assert len(fs.read_text("/long", 70_000)) == 70_000
    assert len(fs.read_text("/long")) == 200_000
    assert fs.read_text("/long", 0) == ""
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(READ_LIMIT_BYTES * 4)
    assert len(fs.read_text("/endless")) == READ_LIMIT_BYTES


def test_bytes_that_are_no_text_are_replaced(fs: HostFS, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"a\xffb\0c")
    assert fs.read_text("/bytes") == "a\ufffdb\0c"


def test_a_write_replaces_and_comes_as_one(fs: HostFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "setting").write_text("a longer value\n")
    writes: list[bytes] = []
    real_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: writes.append(data) or real_write(descriptor, data))
        fs.write_text("/setting", "50\n")
    assert writes == [b"50\n"]
    assert (tmp_path / "setting").read_text() == "50\n"


def test_a_write_creates_nothing(fs: HostFS, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.write_text("/no_such_setting", "1")
    assert not (tmp_path / "no_such_setting").exists()


def test_a_failed_write_closes_its_file(fs: HostFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "setting").write_text("1")
    before = os.listdir("/proc/self/fd")

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(22, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match="Invalid argument"):
            fs.write_text("/setting", "wrong")
    assert os.listdir("/proc/self/fd") == before


def test_names_come_sorted(fs: HostFS, tmp_path: Path) -> None:
    for name in ("sdb", "sda", "nvme0n1"):
        (tmp_path / "sys/block" / name).touch()
    assert fs.list_directory("/sys/block") == ["nvme0n1", "sda", "sdb"]
    with pytest.raises(FileNotFoundError):
        fs.list_directory("/sys/gone")


def test_links_are_followed_to_a_path_of_the_same_root(fs: HostFS, tmp_path: Path) -> None:
    (tmp_path / "sys/devices/disk").mkdir(parents=True)
    (tmp_path / "sys/block/sda").symlink_to("../devices/disk")
    (tmp_path / "sys/block/dangling").symlink_to("gone")
    assert fs.resolve_link("/sys/block/sda") == "/sys/devices/disk"
    assert not fs.exists("/sys/block/dangling")
    with pytest.raises(FileNotFoundError):
        fs.resolve_link("/sys/block/dangling")


def test_a_root_that_is_itself_a_link(tmp_path: Path) -> None:
    (tmp_path / "real/sys/a").mkdir(parents=True)
    (tmp_path / "root").symlink_to("real")
    assert RealFS(str(tmp_path / "root")).resolve_link("/sys/a") == "/sys/a"


@pytest.mark.parametrize("kind", ["fifo", "link to stdin", "device", "in a tree's own /proc"])
def test_what_could_make_a_reader_wait_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    place, root = tmp_path / "etc/x.conf", str(tmp_path)
    if kind == "in a tree's own /proc":
        place = tmp_path / "proc/x"
    place.parent.mkdir()
    path = str(place).removeprefix(root)
    if kind == "link to stdin":
        reading, writing = os.pipe()  # as a standard input that nobody writes to
        place.symlink_to(f"/proc/self/fd/{reading}")
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        os.mkfifo(place)
    with pytest.raises(OSError, match="no plain file"):
        RealFS(root).read_text(path)
    with pytest.raises(OSError, match="no plain file"):
        RealFS().read_text(str(place))
    if kind == "link to stdin":
        os.close(reading)
        os.close(writing)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        RealFS().read_text(str(tmp_path))
