"""Where a process's memory is charged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.mountinfo import Mount
from moetuned.parse.process_cgroup import CgroupPlace, memory_cgroup_place


def mount(kind: str, point: str, *options: str, root: str = "/") -> Mount:
    return Mount(0, 1, root, point, kind, kind, frozenset(options))


V1 = mount("cgroup", "/sys/fs/cgroup/memory", "rw", "memory")
V2 = mount("cgroup2", "/sys/fs/cgroup", "rw")
HYBRID = (V1, mount("cgroup2", "/sys/fs/cgroup/unified", "rw"))


@pytest.mark.parametrize(
    ("text", "mounts", "expected"),
    [
        ("4:memory:/a/b\n0::/x\n", HYBRID, CgroupPlace(1, "/sys/fs/cgroup/memory", "a/b")),
        ("3:cpu,memory:/a\n", (V1,), CgroupPlace(1, "/sys/fs/cgroup/memory", "a")),
        ("0::/system.slice/llama.service\n", (V2,), CgroupPlace(2, "/sys/fs/cgroup", "system.slice/llama.service")),
        ("0::/\n", (V2,), CgroupPlace(2, "/sys/fs/cgroup", "")),
        ("0::/with:colon\n", (V2,), CgroupPlace(2, "/sys/fs/cgroup", "with:colon")),
        ("0::/gone (deleted)\n", (V2,), CgroupPlace(2, "/sys/fs/cgroup", "gone")),
        (
            "4:memory:/docker/abc/in\n",
            (mount("cgroup", "/sys/fs/cgroup/memory", "memory", root="/docker/abc"),),
            CgroupPlace(1, "/sys/fs/cgroup/memory", "in"),
        ),
    ],
)
def test_places(text: str, mounts: tuple[Mount, ...], expected: CgroupPlace) -> None:
    assert memory_cgroup_place(text, mounts) == expected


@pytest.mark.parametrize(
    ("text", "mounts", "why"),
    [
        ("0::/../other\n", (V2,), "outside"),
        ("4:memory:/else\n", (mount("cgroup", "/m", "memory", root="/docker/abc"),), "not below"),
        ("4:memory:/a\n", (), "no mounted"),
        ("", (V1, V2), "no mounted"),
    ],
)
def test_unknown_says_why(text: str, mounts: tuple[Mount, ...], why: str) -> None:
    answer = memory_cgroup_place(text, mounts)
    assert isinstance(answer, str)
    assert why in answer


@given(st.text())
def test_any_text_gives_an_answer_inside_the_hierarchy(text: str) -> None:
    answer = memory_cgroup_place(text, HYBRID)
    if isinstance(answer, CgroupPlace):
        assert ".." not in answer.relative.split("/")
