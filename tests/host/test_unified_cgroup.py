from __future__ import annotations

import pytest
from fakes.fake_kernel import FakeKernel, Text, add_cgroups, usual_kernel

from moetuned.host.unified_cgroup import protected_bytes, unified_cgroup, unit_of

ROOT = "/sys/fs/cgroup"
SWITCH = "/sys/kernel/mm/lru_gen/enabled"


@pytest.fixture
def kernel() -> FakeKernel:
    made = usual_kernel()
    add_cgroups(
        made, "system.slice/llama.service/own", "user.slice/user-1000.slice/user@1000.service/app.slice/a.service"
    )
    made.files["/run/systemd/system/x"] = Text("")
    return made


def test_a_cgroup_and_those_above_it(kernel: FakeKernel) -> None:
    found = unified_cgroup(kernel, f"{ROOT}/system.slice/llama.service/own/")
    assert (found.root, found.name, found.problem) == (ROOT, "system.slice/llama.service/own", None)
    assert found.directory == f"{ROOT}/system.slice/llama.service/own"
    assert [each.directory for each in found.above()] == [f"{ROOT}/system.slice/llama.service", f"{ROOT}/system.slice"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (ROOT, "is not below the root"),
        (f"{ROOT}/system.slice/../x", "is not below the root"),
        (f"{ROOT}/gone", "there is no cgroup"),
        ("/etc", "is no cgroup"),
    ],
)
def test_what_is_none(kernel: FakeKernel, path: str, says: str) -> None:
    assert says in (unified_cgroup(kernel, path).problem or "")


def test_version_1_and_the_empty_half_of_a_hybrid() -> None:
    kernel = usual_kernel()
    add_cgroups(kernel, "llama", kind="cgroup", root=f"{ROOT}/memory")
    assert "version 1" in (unified_cgroup(kernel, f"{ROOT}/memory/llama").problem or "")


def test_without_a_list_of_mounts() -> None:
    assert "list of mounts cannot be read" in (unified_cgroup(usual_kernel(), f"{ROOT}/x").problem or "")


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("system.slice", "system.slice"),
        ("system.slice/llama.service", "llama.service"),
        ("system.slice/llama.service/own", None),
        ("user.slice/user-1000.slice/user@1000.service", "user@1000.service"),
    ],
)
def test_whose_a_cgroup_is(kernel: FakeKernel, path: str, unit: str | None) -> None:
    assert unit_of(kernel, unified_cgroup(kernel, f"{ROOT}/{path}")) == (unit, None)


def test_a_users_own_units_are_the_users(kernel: FakeKernel) -> None:
    above = f"{ROOT}/user.slice/user-1000.slice/user@1000.service/app.slice"
    for path, name in ((above, "app.slice"), (f"{above}/a.service", "a.service")):
        unit, problem = unit_of(kernel, unified_cgroup(kernel, path))
        assert unit is None
        assert f"systemctl --user set-property {name}" in (problem or "")


def test_without_systemd_a_name_is_only_a_name(kernel: FakeKernel) -> None:
    del kernel.files["/run/systemd/system/x"]
    assert unit_of(kernel, unified_cgroup(kernel, f"{ROOT}/system.slice/llama.service")) == (None, None)


def test_a_delegated_cgroup_that_is_called_like_a_unit(kernel: FakeKernel) -> None:
    add_cgroups(kernel, "system.slice/docker.service/inner.scope")
    found = unified_cgroup(kernel, f"{ROOT}/system.slice/docker.service/inner.scope")
    assert unit_of(kernel, found) == (None, None)


@pytest.mark.parametrize(
    ("own", "above", "counts"),
    [("300", "500", 300), ("500", "300", 300), ("max", "300", 300), ("300", "0", 0), ("0", "300", 0), ("300", None, 0)],
)
def test_what_is_protected_is_what_all_above_it_allow(
    kernel: FakeKernel, own: str, above: str | None, counts: int
) -> None:
    for name, text in (
        ("system.slice", "max"),
        ("system.slice/llama.service", above),
        ("system.slice/llama.service/own", own),
    ):
        if text is None:
            del kernel.files[f"{ROOT}/{name}/memory.low"]
        else:
            kernel.files[f"{ROOT}/{name}/memory.low"] = Text(f"{text}\n")
    assert protected_bytes(kernel, f"{ROOT}/system.slice/llama.service/own") == counts


@pytest.mark.parametrize(
    ("switch", "low", "hard", "counts"),
    [
        ("0x0000", "500", "300", 500),
        ("0x0006", "500", "0", 500),
        ("0x0007", "500", "300", 300),
        ("0x0001", "500", "0", 0),
        ("0x0007", "max", "max", 1 << 60),
        ("y", "500", "0", 500),
        (None, "200", "300", 300),
    ],
)
def test_with_the_multi_gen_lru_only_memory_min_counts(
    kernel: FakeKernel, switch: str | None, low: str, hard: str, counts: int
) -> None:
    kernel.files.pop(SWITCH, None)
    if switch is not None:
        kernel.files[SWITCH] = Text(f"{switch}\n")
    for name in ("system.slice", "system.slice/llama.service"):
        kernel.files[f"{ROOT}/{name}/memory.low"] = Text(f"{low}\n")
        kernel.files[f"{ROOT}/{name}/memory.min"] = Text(f"{hard}\n")
    assert protected_bytes(kernel, f"{ROOT}/system.slice/llama.service") == counts
    # As far as all above it allow, as with memory.low.
    kernel.files[f"{ROOT}/system.slice/memory.min"] = Text("0\n")
    kernel.files[f"{ROOT}/system.slice/memory.low"] = Text("0\n")
    assert protected_bytes(kernel, f"{ROOT}/system.slice/llama.service") == 0


@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/gone", "/etc"])
def test_what_is_no_cgroup_protects_nothing(kernel: FakeKernel, path: str) -> None:
    assert protected_bytes(kernel, path) == 0
