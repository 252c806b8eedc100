"""The fake kernel against the real one: the same writes, the same answers."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from fakes.fake_kernel import FakeKernel, usual_kernel
from fakes.own_settings import own_settings

from moetuned.host.fs import HostFS, RealFS

pytestmark = pytest.mark.kernel

VM = "/proc/sys/vm/"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
START = [
    (VM + "overcommit_memory", "0"),
    (VM + "dirty_ratio", "20"),
    (VM + "dirty_background_ratio", "10"),
    (VM + "vfs_cache_pressure", "100"),
    (THP, "madvise"),
]
STORIES = [
    [
        (VM + "dirty_ratio", "10"),
        (VM + "dirty_bytes", "1048576"),
        (VM + "dirty_ratio", "0"),
        (VM + "dirty_ratio", "10"),
    ],
    [(VM + "dirty_bytes", "8191"), (VM + "dirty_bytes", "8192"), (VM + "dirty_bytes", "0")],
    [(VM + "dirty_background_bytes", "1"), (VM + "dirty_background_ratio", "0"), (VM + "dirty_background_bytes", "0")],
    [(VM + "dirty_ratio", "101"), (VM + "dirty_ratio", "-1"), (VM + "dirty_ratio", " 7 \n"), (VM + "dirty_ratio", "x")],
    [(VM + "dirty_ratio", "7 8"), (VM + "dirty_ratio", "0x9"), (VM + "dirty_ratio", "9x"), (VM + "dirty_ratio", "")],
    [(VM + "overcommit_memory", "3"), (VM + "overcommit_memory", "1")],
    [(VM + "vfs_cache_pressure", "-1"), (VM + "vfs_cache_pressure", "2147483648"), (VM + "vfs_cache_pressure", "1")],
    [
        (THP, "never"),
        (THP, "sometimes"),
        (THP, "[always]"),
        (THP, "always\n"),
        (THP, "Never"),
        (THP, " never"),
        (THP, ""),
    ],
    [(VM + "no_such_setting", "1")],
]


@pytest.fixture
def real() -> Iterator[RealFS]:
    with own_settings() as fs:
        yield fs


def answers(fs: HostFS, story: list[tuple[str, str]]) -> list[object]:
    found: list[object] = []
    for path, text in story:
        try:
            fs.write_text(path, text)
            found.append("written")
        except OSError as error:
            found.append(errno.errorcode[error.errno or 0])
        found.append({other: fs.read_text(other) for other in FakeKernel.settings(usual_kernel())})
    return found


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_both_answer_the_same(real: RealFS, story: list[tuple[str, str]]) -> None:
    fake = usual_kernel()
    answers(real, START)  # wherever the machine stands
    assert answers(fake, [*START, *story]) == answers(real, [*START, *story])
