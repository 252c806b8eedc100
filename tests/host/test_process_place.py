"""Files and network of a process in a container."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.own_cgroup import hierarchy, own_cgroup

from moetuned import backends
from moetuned.host import process_place
from moetuned.host.cgroup import joining, memory_cgroup
from moetuned.host.process_place import path_here, same_namespace, url_here
from moetuned.host.processes import identify
from moetuned.host.running_backends import describe
from moetuned.host.slot_files import directory_of

CONTAINER = r"""
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
for name in bin lib lib64 usr; do
  if [ -L /$name ]; then ln -s "$(readlink /$name)" $name; else mkdir $name; mount --bind /$name $name; fi
done
mkdir proc old
mount -t proc proc proc
pivot_root . old
umount -l /old
cd /models
exec -a llama-server /usr/bin/python3 -c 'import sys; print("up", flush=True); sys.stdin.read()' -m m.gguf --port 8099
"""


def test_its_own_process_sees_what_this_one_sees(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"x")
    pid = os.getpid()
    assert same_namespace(pid, "mnt")
    assert path_here(pid, str(model)) == str(model)
    assert path_here(pid, str(tmp_path / "gone")) is None
    assert path_here(pid, os.path.relpath(model)) is not None
    assert path_here(pid, "gone/a\0b") is None
    assert url_here(pid, "http://127.0.0.1:8080", 8080) == ("http://127.0.0.1:8080", None)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_file_that_is_the_same_in_mounts_of_its_own_keeps_its_plain_name(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "m.gguf").write_bytes(b"x")
    script = f"mount -t tmpfs tmpfs {tmp_path}/hidden && echo y >{tmp_path}/hidden/m.gguf && echo up && exec cat"
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert not same_namespace(child.pid, "mnt")
        assert path_here(child.pid, f"{tmp_path}/m.gguf") == f"{tmp_path}/m.gguf"
        assert path_here(child.pid, "m.gguf") == f"{tmp_path}/m.gguf"
        assert path_here(child.pid, f"{tmp_path}/hidden/m.gguf") == f"/proc/{child.pid}/root{tmp_path}/hidden/m.gguf"
        assert directory_of(child.pid, str(tmp_path)) == str(tmp_path)
        with pytest.raises(OSError, match="container of its own"):
            directory_of(child.pid, f"{tmp_path}/hidden")
        child.kill()


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert path_here(child.pid, "m.gguf") is None


def test_links_are_followed_below_the_root_of_the_container(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "store/deep").mkdir(parents=True)
    (root / "store/deep/real.gguf").write_bytes(b"x")
    (root / "models").symlink_to("/store")
    (root / "store/m.gguf").symlink_to("deep/../deep/./real.gguf")
    (root / "up.gguf").symlink_to("../../../../store/m.gguf")
    (root / "loop").symlink_to("/loop")
    follow = process_place._follow
    assert follow(str(root), "/models/m.gguf") == "/store/deep/real.gguf"
    assert follow(str(root), "/up.gguf") == "/store/deep/real.gguf", "nothing is above the root"
    with pytest.raises(OSError, match="too many links"):
        follow(str(root), "/loop")
    with pytest.raises(FileNotFoundError):
        follow(str(root), "/models/gone/m.gguf")


@contextlib.contextmanager
def container(root: Path, cgroup: str) -> Iterator[int]:
    """Pid of a process with its own mounts, root, network, pids and view of cgroups, that looks like a llama-server."""
    tools = ("unshare", "bash", "pivot_root")
    if any(shutil.which(tool) is None for tool in tools) or not os.path.exists("/usr/bin/python3"):
        pytest.skip("unshare, bash, pivot_root or /usr/bin/python3 is missing")
    command = joining(cgroup, ["unshare", "-m", "-n", "-C", "-p", "--fork", "bash", "-c", CONTAINER, "sh", str(root)])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        assert outer.stdin is not None
        assert outer.stdout is not None
        try:
            assert outer.stdout.readline() == b"up\n", "no new namespaces here"
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            yield int(children[0])
        finally:
            outer.stdin.close()


@pytest.mark.kernel
def test_a_backend_in_a_container_is_found_with_its_cgroup_and_its_model(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "store").mkdir(parents=True)
    (root / "models").mkdir()
    (root / "store/real.gguf").write_bytes(b"weights")
    (root / "models/m.gguf").symlink_to("/store/real.gguf")
    with own_cgroup(300 << 20) as limited:
        inner = f"{limited}/docker-{'ab' * 32}.scope"
        if hierarchy().version == 2:
            Path(f"{limited}/cgroup.subtree_control").write_text("+memory")
        os.mkdir(inner)
        try:
            with container(root, inner) as pid:
                identity = identify(pid)
                assert identity is not None
                argv = tuple(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1])
                found = describe(identity, argv, backends.find)
                assert found is not None
                assert found.kind == "llama-server"
                assert found.model_path == f"/proc/{pid}/root/store/real.gguf"
                assert Path(found.model_path).read_bytes() == b"weights"
                cgroup = memory_cgroup(pid)
                assert (cgroup.directory, cgroup.limited_above) == (inner, (limited,))
                assert found.description.url is None
                assert "another network namespace" in (found.description.url_unknown or "")
                assert found.said_url == "http://127.0.0.1:8099"
        finally:
            os.rmdir(inner)
