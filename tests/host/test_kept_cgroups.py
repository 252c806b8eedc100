"""Which cgroups keep what they use: of a made-up tree, and of the real one."""

from __future__ import annotations

import pytest
from fakes.fake_kernel import FakeKernel, Limit, Text, add_cgroups

from moetuned.host.kept_cgroups import kept_cgroups, kept_memory

ROOT = "/sys/fs/cgroup"


def kernel_with(recursive: bool = True, **keeps: str) -> FakeKernel:
    kernel = FakeKernel({})
    add_cgroups(kernel, "a/one/inner", "a/two", "b", "c/three")
    if not recursive:
        table = kernel.files["/proc/self/mountinfo"].read()
        kernel.files["/proc/self/mountinfo"] = Text(table.replace("memory_recursiveprot", "nsdelegate"))
    for name, value in keeps.items():
        kernel.files[f"{ROOT}/{name.replace('__', '/')}/memory.min"] = Limit(value)
    return kernel


def found(kernel: FakeKernel) -> dict[str, int]:
    return {one.directory.removeprefix(f"{ROOT}/"): one.keeps_bytes for one in kept_cgroups(kernel)}


def test_nothing_is_kept_where_nobody_asked_or_those_above_do_not_let_it() -> None:
    assert found(kernel_with()) == {}
    assert found(kernel_with(a__two="5")) == {}
    assert found(FakeKernel({})) == {}


def test_each_is_told_with_those_above_it() -> None:
    assert found(kernel_with(a="9", a__two="5", c="7", c__three="max")) == {
        "a": 9,
        "a/two": 5,
        "c": 7,
        "c/three": 1 << 60,
    }


@pytest.mark.parametrize("recursive", [True, False])
def test_what_nobody_below_asks_for_is_theirs_only_where_it_is_shared_out(recursive: bool) -> None:
    shares = {one.directory: one.shares for one in kept_cgroups(kernel_with(recursive, a="9", a__one="5", b="3"))}
    assert shares == {f"{ROOT}/a": recursive, f"{ROOT}/a/one": recursive, f"{ROOT}/b": True}


def test_in_one_that_may_have_a_limit_they_keep_it_from_that_whatever_those_above_do() -> None:
    kernel = kernel_with(a__one="5", a__one__inner="3", c="7", c__three="2")
    where = [f"{ROOT}/a", f"{ROOT}/c", "/sys/fs/cgroup/memory/of/version/1", "/elsewhere"]
    on_machine = {one.directory: one.on_machine for one in kept_cgroups(kernel, where)}
    assert on_machine == {
        f"{ROOT}/a/one": False,
        f"{ROOT}/a/one/inner": False,
        f"{ROOT}/c": True,
        f"{ROOT}/c/three": True,
    }


def test_what_cannot_be_read_keeps_nothing() -> None:
    kernel = kernel_with(a="9", a__two="5")
    kernel.files[f"{ROOT}/a/two/memory.min"] = Text("much\n")
    assert found(kernel) == {"a": 9}
    del kernel.files[f"{ROOT}/a/memory.min"]
    assert found(kernel) == {}


def test_no_more_than_so_many_are_followed() -> None:
    kernel = FakeKernel({})
    add_cgroups(kernel, *(f"n{number}" for number in range(100)))
    for number in range(100):
        kernel.files[f"{ROOT}/n{number}/memory.min"] = Limit("1")
    assert len(found(kernel)) == 64


def test_the_real_tree_can_be_looked_at() -> None:
    assert all(one.keeps_bytes > 0 for one in kept_cgroups())


def test_what_they_use_now() -> None:
    kernel = kernel_with(a="9", a__two="5", b="3")
    kernel.files[f"{ROOT}/a/two/memory.current"] = Text("4\n")
    for name in ("memory.current", "memory.stat"):
        del kernel.files[f"{ROOT}/b/{name}"]
    _, only = kept_memory(kernel)
    assert (only.directory, only.keeps_bytes, only.memory.current_bytes) == (f"{ROOT}/a/two", 5, 4)
