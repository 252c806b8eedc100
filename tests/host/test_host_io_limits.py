from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.host.fs import RealFS
from moetuned.host.io_limits import device_numbers, read_limit
from moetuned.parse.io_limits import ReadLimit


def write(root: Path, path: str, text: str) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


@pytest.mark.parametrize("above", ["", "/glm.service"])
def test_a_limit_on_it_or_above_it(tmp_path: Path, above: str) -> None:
    write(tmp_path, "proc/9/cgroup", "0::/llm.slice/glm.service\n")
    write(tmp_path, "proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    write(tmp_path, "sys/fs/cgroup/llm.slice/glm.service/io.max", "")
    write(tmp_path, f"sys/fs/cgroup/llm.slice{above}/io.max", "8:0 rbps=1000 wbps=max riops=max wiops=max\n")
    write(tmp_path, "sys/block/sda/dev", "8:0\n")
    fs = RealFS(str(tmp_path))
    numbers = device_numbers(fs, ["sda", "gone"])
    assert numbers == {"8:0"}
    found = read_limit(9, numbers, fs)
    assert found is not None
    assert (found.path, found.limit) == (f"/sys/fs/cgroup/llm.slice{above}/io.max", ReadLimit(1000))
    assert read_limit(9, {"8:16"}, fs) is None, "another disk's"
    assert read_limit(10, numbers, fs) is None


def test_version_1(tmp_path: Path) -> None:
    write(tmp_path, "proc/9/cgroup", "3:blkio:/box\n2:memory:/other\n")
    write(tmp_path, "proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n")
    write(tmp_path, "sys/fs/cgroup/blkio/box/blkio.throttle.read_iops_device", "8:0 77\n")
    found = read_limit(9, {"8:0"}, RealFS(str(tmp_path)))
    assert found is not None
    assert found.limit == ReadLimit(None, 77)
