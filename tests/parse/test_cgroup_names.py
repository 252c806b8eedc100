"""Paths of cgroups as each container engine makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.cgroup_names import cgroup_name, container_of

ID = "3f2a9c0d1e4b5a6978" + "0" * 46
UID = "0d6ad1a4-9b1f-4e6e-8d0f-3a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/system.slice/docker-{ID}.scope", "docker container 3f2a9c0d1e4b"),
        (f"/docker/{ID}", "docker container 3f2a9c0d1e4b"),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope", "docker container 3f2a9c0d1e4b"),
        (f"/docker/{ID}/init", "docker container 3f2a9c0d1e4b"),
        (f"/machine.slice/libpod-{ID}.scope/container", "podman container 3f2a9c0d1e4b"),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", "podman container 3f2a9c0d1e4b"),
        (f"/libpod_parent/libpod-{ID}", "podman container 3f2a9c0d1e4b"),
        (f"/system.slice/nerdctl-{ID}.scope", "containerd container 3f2a9c0d1e4b"),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
            "containerd container 3f2a9c0d1e4b",
        ),
        (f"/kubepods/burstable/pod{UID}/{ID}", "container 3f2a9c0d1e4b"),
        (f"/kubepods/burstable/pod{UID}", f"Kubernetes pod {UID}"),
        (f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice", f"Kubernetes pod {UID}"),
        (f"/kubepods/besteffort/pod{UID}/crio-{ID}", "CRI-O container 3f2a9c0d1e4b"),
        ("/lxc.payload.llm/system.slice/llama.service", "LXC container llm"),
        ("/lxc/101/ns/system.slice/llama.service", "LXC container 101"),
        ("/machine.slice/systemd-nspawn@deb.service/payload", "nspawn container deb"),
        (r"/machine.slice/machine-my\x2dbox.scope", "machine my-box"),
        ("/system.slice/llama.service", None),
        ("/user.slice/user-1000.slice/session-2.scope", None),
        ("/", None),
        (f"/somewhere/{ID}", None),
    ],
)  # fmt: skip
def test_containers(path: str, container: str | None) -> None:
    assert container_of(path) == container


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/sys/fs/cgroup/user.slice", "user.slice"),
        ("/sys/fs/cgroup/system.slice/llama.service", "llama.service"),
        (f"/sys/fs/cgroup/system.slice/docker-{ID}.scope", "docker container 3f2a9c0d1e4b"),
        (f"/sys/fs/cgroup/memory/docker/{ID}", "docker container 3f2a9c0d1e4b"),
        (f"/sys/fs/cgroup/machine.slice/libpod-{ID}.scope/container", f"/sys/fs/cgroup/machine.slice/libpod-{ID}.scope/container"),
        ("/sys/fs/cgroup/memory/llm", "/sys/fs/cgroup/memory/llm"),
        ("/sys/fs/cgroup", "this container"),
        ("/", "the root cgroup"),
    ],
)  # fmt: skip
def test_names_of_what_has_a_limit(path: str, name: str) -> None:
    assert cgroup_name(path) == name


@given(st.text())
def test_any_path_has_a_name(path: str) -> None:
    assert cgroup_name(path) or not path.strip("/")
    container_of(path)
