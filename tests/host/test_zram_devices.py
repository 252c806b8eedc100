from __future__ import annotations

import errno
import os

import pytest

from moetuned.host import zram_devices
from moetuned.host.swap_signature import SwapError
from moetuned.host.zram_devices import (
    add_zram,
    look_at_zram,
    remove_zram,
    set_up_zram,
    zram_loaded,
    zram_numbers,
    zram_path,
    zram_refusal,
)


class Files:
    """A few files of /sys; a write may be answered with an error first."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.written: list[tuple[str, str]] = []
        self.errors: dict[str, list[int]] = {}

    def read_text(self, path: str, limit_bytes: int = 0) -> str:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self.files[path]

    def write_text(self, path: str, text: str) -> None:
        if self.errors.get(path):
            number = self.errors[path].pop(0)
            raise OSError(number, os.strerror(number), path)
        self.written.append((path, text))

    def exists(self, path: str) -> bool:
        return path in self.files

    def list_directory(self, path: str) -> list[str]:
        return sorted({name[len(path) + 1 :].split("/")[0] for name in self.files if name.startswith(f"{path}/")})

    def resolve_link(self, path: str) -> str:
        return path


def device(number: int, **values: str) -> dict[str, str]:
    return {f"/sys/block/zram{number}/{name}": f"{value}\n" for name, value in values.items()}


HOT = {"/sys/class/zram-control/hot_add": "3\n"}


def test_which_devices_there_are() -> None:
    fs = Files(
        {**device(10, disksize="0"), **device(2, disksize="0"), "/sys/block/sda/size": "1", "/sys/block/zramx/y": ""}
    )
    assert zram_numbers(fs) == (2, 10)


def test_adding_gives_the_kernels_number() -> None:
    assert add_zram(Files(dict(HOT))) == 3
    with pytest.raises(SwapError, match="did not give a number"):
        add_zram(Files({"/sys/class/zram-control/hot_add": "rubbish\n"}))


def test_a_device_that_is_not_set_up_is_not_opened() -> None:
    fs = Files(device(7, disksize="0", diskseq="42"))
    look = look_at_zram(7, fs)
    assert look is not None
    assert (look.number, look.sequence, look.size_bytes, look.blank) == (7, 42, 0, True)
    assert look_at_zram(8, fs) is None
    old = look_at_zram(1, Files(device(1, disksize="0")))
    assert old is not None
    assert old.sequence is None


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("lzo-rle lzo lz4 [zstd]", "zstd"), ("[lzo-rle] lzo lz4 ", "lz4"), ("lzo [lzo-rle]", None), ("rubbish", None)],
)
def test_the_best_compression_the_kernel_has(offered: str, chosen: str | None) -> None:
    fs = Files(device(1, comp_algorithm=offered))
    set_up_zram(1, 1 << 20, fs)
    expected = [] if chosen is None else [("/sys/block/zram1/comp_algorithm", chosen)]
    assert fs.written == [*expected, ("/sys/block/zram1/disksize", str(1 << 20))]


def test_what_looks_at_a_new_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(zram_devices.time, "sleep", waited.append)
    fs = Files({})
    fs.errors["/sys/block/zram1/reset"] = [errno.EBUSY, errno.EBUSY]
    remove_zram(1, fs)
    assert fs.written == [("/sys/block/zram1/reset", "1"), ("/sys/class/zram-control/hot_remove", "1")]
    assert len(waited) == 2
    fs.errors["/sys/class/zram-control/hot_remove"] = [errno.EBUSY] * 1000
    with pytest.raises(OSError, match="busy"):
        remove_zram(1, fs)
    assert sum(waited) < 3


@pytest.mark.parametrize("gone", [errno.ENOENT, errno.ENODEV])
def test_a_device_that_is_gone_is_removed(gone: int) -> None:
    fs = Files({})
    fs.errors = {"/sys/block/zram1/reset": [gone], "/sys/class/zram-control/hot_remove": [gone]}
    remove_zram(1, fs)
    assert fs.written == []


def test_whether_there_can_be_zram(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def run(name: str, arguments: tuple[str, ...], package: str, outside: bool) -> None:
        assert outside, "the daemon's unit may load no modules"
        calls.append((name, *arguments))
        raise SwapError("modprobe failed with code 1")

    monkeypatch.setattr(zram_devices, "run_program", run)
    assert zram_refusal(Files(dict(HOT))) is None
    assert zram_loaded(Files(dict(HOT)))
    assert calls == []
    assert zram_refusal(Files({})) == "this kernel has no zram: modprobe failed with code 1"
    assert not zram_loaded(Files({}))
    assert calls == [("modprobe", "--dry-run", "--quiet", "zram")]


def test_the_module_is_loaded_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        zram_devices, "run_program", lambda name, arguments, package, outside: calls.append((name, *arguments, outside))
    )
    monkeypatch.setattr(zram_devices, "find_program", lambda name: f"/sbin/{name}")
    zram_devices.load_zram()
    zram_devices.unload_zram()
    assert calls == [("modprobe", "zram", "num_devices=0", True), ("modprobe", "--remove", "zram", True)]


def test_the_devices_node() -> None:
    assert zram_path(3) == "/dev/zram3"
