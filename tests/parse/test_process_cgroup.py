"""Where a process's memory is charged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.mountinfo import Mount, parse_mountinfo
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


ID = "3f2a9c0d1e4b5a6978" + "0" * 46
HOST_V2 = (mount("cgroup2", "/sys/fs/cgroup", "rw", "nsdelegate"),)
HOST_V1 = (
    mount("cgroup2", "/sys/fs/cgroup/unified", "rw", "nsdelegate"),
    mount("cgroup", "/sys/fs/cgroup/systemd", "rw", "xattr", "name=systemd"),
    mount("cgroup", "/sys/fs/cgroup/cpu,cpuacct", "rw", "cpu", "cpuacct"),
    mount("cgroup", "/sys/fs/cgroup/memory", "rw", "memory"),
)
V1_LINES = "12:cpu,cpuacct:{0}\n5:memory:{0}\n1:name=systemd:{0}\n0::{1}\n"


@pytest.mark.parametrize(
    ("text", "mounts", "place"),
    [
        # On the host, each engine.
        (f"0::/system.slice/docker-{ID}.scope\n", HOST_V2, f"system.slice/docker-{ID}.scope"),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", HOST_V2, f"machine.slice/libpod-{ID}.scope/container"),
        ("0::/lxc.payload.llm/system.slice/llama.service\n", HOST_V2, "lxc.payload.llm/system.slice/llama.service"),
        ("0::/machine.slice/systemd-nspawn@deb.service/payload\n", HOST_V2, "machine.slice/systemd-nspawn@deb.service/payload"),
        (V1_LINES.format(f"/docker/{ID}", f"/docker/{ID}"), HOST_V1, f"docker/{ID}"),
        (V1_LINES.format("/lxc/101/ns/system.slice/llama.service", "/"), HOST_V1, "lxc/101/ns/system.slice/llama.service"),
        # cgroupfs elsewhere.
        ("0::/llm\n", (mount("cgroup2", "/mnt/cg", "rw"),), "llm"),
        ("2:memory:/llm\n", (mount("cgroup", "/cgroup/memory", "rw", "memory"),), "llm"),
        # The reader is in a container with the whole hierarchy mounted from the host: its own cgroup is two levels down.
        ("0::/../../system.slice/llama.service\n", (mount("cgroup2", "/host/cgroup", root="/../.."),), "system.slice/llama.service"),
        # Its own namespace's mount beside it tells of what is in the container.
        (
            "0::/llama\n",
            (mount("cgroup2", "/host/cgroup", root="/../.."), mount("cgroup2", "/sys/fs/cgroup")),
            "llama",
        ),
        # A bind mount of a part comes first; the whole is used.
        (
            "0::/system.slice/a.service\n",
            (mount("cgroup2", "/part", root="/system.slice"), mount("cgroup2", "/sys/fs/cgroup")),
            "system.slice/a.service",
        ),
        ("0::/a/../b\n", HOST_V2, None),
    ],
)  # fmt: skip
def test_containers(text: str, mounts: tuple[Mount, ...], place: str | None) -> None:
    answer = memory_cgroup_place(text, mounts)
    assert (answer.relative if isinstance(answer, CgroupPlace) else None) == place


def test_the_mount_that_can_tell_is_taken() -> None:
    mounts = (mount("cgroup2", "/host/cgroup", root="/../.."), mount("cgroup2", "/sys/fs/cgroup"))
    inside, outside = memory_cgroup_place("0::/llama\n", mounts), memory_cgroup_place("0::/../../b\n", mounts)
    assert isinstance(inside, CgroupPlace)
    assert isinstance(outside, CgroupPlace)
    assert (inside.mount_point, outside.mount_point) == ("/sys/fs/cgroup", "/host/cgroup")


@pytest.mark.parametrize(
    ("text", "mounts", "why"),
    [
        ("0::/../other\n", (V2,), "outside"),
        ("0::/../other\n", (mount("cgroup2", "/host", root="/../.."),), "does not tell"),
        ("0::/a/../b\n", (V2,), "cannot be understood"),
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


@pytest.mark.parametrize("end", ["\x0b", "\x1c", "\x85", "\u2028", "\r"])
def test_a_cgroup_whose_name_looks_like_another_line_is_none(end: str) -> None:
    mounts = parse_mountinfo("31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    found = memory_cgroup_place(f"1:name=systemd:/user{end}0::/other\n0::/own\n", mounts)
    assert isinstance(found, CgroupPlace)
    assert found.relative == "own"
