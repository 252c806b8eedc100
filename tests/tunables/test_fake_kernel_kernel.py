"""The fake kernel against the real one: the same writes, the same answers."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.fake_kernel import FakeKernel, add_disk, usual_kernel
from fakes.own_disk import mounted_loop_device
from fakes.own_settings import own_settings

from moetuned.host.fs import HostFS, RealFS
from moetuned.parse.tunable_text import parse_choices

pytestmark = pytest.mark.kernel

VM = "/proc/sys/vm/"
PAGES = "/sys/kernel/mm/transparent_hugepage/"
THP = PAGES + "enabled"
LOW = (VM + "min_free_kbytes", "1024")  # the kernel's own value is above it, and wins again
START = [
    LOW,
    (VM + "overcommit_memory", "0"),
    (VM + "dirty_ratio", "20"),
    (VM + "dirty_background_ratio", "10"),
    (VM + "vfs_cache_pressure", "100"),
    (VM + "swappiness", "60"),
    (VM + "page-cluster", "3"),
    (VM + "watermark_scale_factor", "10"),
    (VM + "max_map_count", "65530"),
    (PAGES + "defrag", "madvise"),
    (PAGES + "khugepaged/defrag", "1"),
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
    [(VM + "swappiness", text) for text in ("0", "200", "201", "-1", "60 max", "max", "10")],
    [(VM + "page-cluster", text) for text in ("0", "31", "32", "-1", "3")],
    [(VM + "watermark_scale_factor", text) for text in ("0", "1", "3000", "3001", "10")],
    [(VM + "max_map_count", text) for text in ("2147483647", "2147483648", "-1", "65530")],
    [(PAGES + "defrag", text) for text in ("defer", "defer+madvise", "[never]", "sometimes", "never", "always")],
    [(PAGES + "khugepaged/defrag", text) for text in ("0", "2", "-1", "1 2", "x", "0x1", " 1", "1\n")],
    [(VM + "min_free_kbytes", "70000"), (THP, "never"), (THP, "always"), LOW, (THP, "always"), LOW, (THP, "never")],
    [
        (THP, "never"),
        (VM + "min_free_kbytes", "-1"),
        (VM + "min_free_kbytes", "40000"),
        (THP, "never"),
        (THP, "madvise"),
    ],
]
QUEUE_STORIES = [
    [("scheduler", text) for text in ("mq-deadline", "kyber", "bfq", "none", " none", "[bfq]", "NONE", "no", "bfq\n")],
    [("nr_requests", text) for text in ("64", "3", "129", "128", "x", "-1", "7 8", "99999999999")],
    [("scheduler", "mq-deadline"), ("nr_requests", "512"), ("nr_requests", "4"), ("scheduler", "none")],
    [("nr_requests", "8"), ("scheduler", "bfq"), ("wbt_lat_usec", "500"), ("scheduler", "none"), ("wbt_lat_usec", "0")],
    [("wbt_lat_usec", "500"), ("scheduler", "bfq"), ("scheduler", "none")],
]


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    with mounted_loop_device(tmp_path) as made:
        yield made


@pytest.fixture
def real() -> Iterator[RealFS]:
    with own_settings() as fs:
        yield fs


def answers(fs: HostFS, story: list[tuple[str, str]], paths: list[str]) -> list[object]:
    found: list[object] = []
    for path, text in story:
        try:
            fs.write_text(path, text)
            found.append("written")
        except OSError as error:
            found.append(errno.errorcode[error.errno or 0])
        found.append({other: fs.read_text(other) for other in paths})
    return found


def roughly(found: list[object], own: tuple[int, int]) -> list[object]:
    """The kernel's own vm.min_free_kbytes depends a little on the one before (it counts the pages above the marks)."""

    def near(text: str) -> str:
        return next((f"about {value}" for value in own if abs(int(text) - value) <= value // 20), text)

    return [
        {path: near(text) if path == LOW[0] else text for path, text in each.items()}
        if isinstance(each, dict)
        else each
        for each in found
    ]


def own_values_of_min_free(fs: RealFS) -> tuple[int, int]:
    """What this machine's kernel computes with huge pages and without."""
    found = []
    for choice in ("madvise", "never"):
        fs.write_text(*LOW)
        fs.write_text(THP, choice)
        found.append(int(fs.read_text(LOW[0])))
    return found[0], found[1]


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_both_answer_the_same(real: RealFS, story: list[tuple[str, str]]) -> None:
    own = own_values_of_min_free(real)
    fake = usual_kernel(own)
    paths = [path for path in FakeKernel.settings(fake) if real.exists(path)]  # lru_gen is not in every kernel
    answers(real, START, paths)  # wherever the machine stands
    told = [*START, *story]
    assert roughly(answers(fake, told, paths), own) == roughly(answers(real, told, paths), own)


@pytest.mark.parametrize("story", QUEUE_STORIES, ids=range(len(QUEUE_STORIES)))
def test_both_answer_the_same_of_a_disk(own_disk: tuple[str, Path], story: list[tuple[str, str]]) -> None:
    name, _ = own_disk
    fake, queue = usual_kernel(), f"/sys/block/{name}/queue"
    add_disk(fake, name, "7:1", 4096)
    paths = [f"{queue}/{file}" for file in ("scheduler", "nr_requests", "wbt_lat_usec")]
    real = RealFS()
    if set(parse_choices(real.read_text(paths[0]))) != {"none", "mq-deadline", "kyber", "bfq"}:
        pytest.skip("this kernel offers other I/O schedulers")
    start = [(paths[0], "none"), (paths[1], "128"), (paths[2], "2000")]
    answers(real, start, paths)
    told = [*start, *((f"{queue}/{file}", text) for file, text in story)]
    assert answers(fake, told, paths) == answers(real, told, paths)
