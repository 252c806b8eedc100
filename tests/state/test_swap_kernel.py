"""Real swap on the real kernel: made, filled, swapped off, removed; on ext4, xfs and btrfs, and in zram."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.own_cgroup import own_cgroup

from moetuned.host.active_swaps import read_swaps
from moetuned.host.block_devices import under_file
from moetuned.host.cgroup import LIMIT_FILE, writable_hierarchy
from moetuned.host.fs import RealFS
from moetuned.host.program_search import find_program
from moetuned.host.swap_devices import swap_off_slowly, swap_on
from moetuned.host.swap_facts import rights_refusal
from moetuned.host.swap_files import is_swapped_on, look_at_file
from moetuned.host.swap_host import RealSwapHost
from moetuned.host.swap_room import tight_cgroups, used_bytes
from moetuned.host.zram_devices import zram_loaded, zram_numbers
from moetuned.schema.swap import Swap, SwapFacts
from moetuned.state import swap

MIB = 1 << 20
pytestmark = pytest.mark.kernel


class SsdHost(RealSwapHost):
    """The real machine, whose disk (often a virtual one) does not turn, whatever it says."""

    def facts(self, path: str | None, *, look_for_zram: bool = True) -> SwapFacts:
        facts = super().facts(path, look_for_zram=look_for_zram)
        if facts.file is None:
            return facts
        return msgspec.structs.replace(facts, file=msgspec.structs.replace(facts.file, rotational=False))


@pytest.fixture(autouse=True)
def own_swap(tmp_path: Path) -> Iterator[None]:
    """One test of swap at a time; nothing of its own is on afterwards, and there are the zram devices of before."""
    if os.geteuid() != 0 or rights_refusal() is not None:
        pytest.skip("needs root and no container: it swaps on and off")
    if find_program("mkswap") is None:
        pytest.skip("needs mkswap of util-linux")
    with open("/proc/swaps", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = zram_numbers()
        try:
            yield
        finally:
            swap.rollback_slowly(RealSwapHost(str(tmp_path / "state")), str(tmp_path / "state"))
            left = [each.name for each in read_swaps() or () if each.name.startswith(f"{tmp_path}/")]
            for name in left:  # never what somebody else swapped on meanwhile
                swap_off_slowly(name)
        assert (left, zram_numbers()) == ([], before)


def state_directory(tmp_path: Path) -> str:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    return str(directory)


@contextlib.contextmanager
def mounted(tmp_path: Path, kind: str, size_bytes: int) -> Iterator[Path]:
    """A file system of this kind in a file of its own."""
    needed = [f"mkfs.{kind}", "losetup", "mount", "umount"]
    missing = [name for name in needed if find_program(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    if kind not in Path("/proc/filesystems").read_text(encoding="ascii"):
        pytest.skip(f"this kernel has no {kind}")
    image, point = tmp_path / f"{kind}.img", tmp_path / kind
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True, capture_output=True)
    try:
        point.chmod(0o755)
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True, capture_output=True)


def test_a_file_on_the_machines_own_disk(tmp_path: Path) -> None:
    directory, path = state_directory(tmp_path), str(tmp_path / "a swap\\file")
    if under_file(directory).filesystem not in ("ext4", "xfs", "btrfs"):
        pytest.skip("the test directory is on a file system that cannot hold a swap file")
    host, wish = SsdHost(directory), Swap(file=path, size="64MiB", priority=7)
    assert [step.kind for step in swap.plan(host, directory, wish)] == ["make"]
    (view,) = swap.apply_slowly(host, directory, wish)
    assert (view.name, view.state, view.now) == (f"swap file {path}", "applied", "64.0 MiB")
    (row,) = [each for each in read_swaps() or () if each.name == path]
    assert (row.kind, row.size_bytes, row.priority, row.deleted) == ("file", 64 * MIB - mmap.PAGESIZE, 7, False)
    look = look_at_file(path)
    assert look is not None
    assert (look.mode, look.owner, look.size_bytes) == (0o600, 0, 64 * MIB)
    with pytest.raises(OSError, match="permitted"):
        os.unlink(path)
    steps = swap.plan(host, directory, wish)
    assert [step.kind for step in steps] == ["keep"]
    assert [each.state for each in swap.verify(host, directory, steps)] == ["applied"]
    assert [each.state for each in swap.apply_slowly(host, directory, wish)] == ["applied"]

    swap_off_slowly(path)
    assert [each.state for each in swap.verify(host, directory, steps)] == ["drifted"]
    assert [each.state for each in swap.apply_slowly(host, directory, wish)] == ["drifted"]
    assert not is_swapped_on(path)

    (view,) = swap.rollback_slowly(host, directory)
    assert (view.state, view.now) == ("restored", "none")
    assert not os.path.lexists(path)
    assert [each.state for each in swap.apply_slowly(host, directory, wish)] == ["yielded"], "for the rest of this boot"
    assert [each.state for each in swap.apply_slowly(host, directory, wish, by_hand=True)] == ["applied"]
    assert [each.state for each in swap.rollback_slowly(host, directory)] == ["restored"]
    assert not os.path.lexists(path)
    assert os.listdir(directory) == []


@pytest.mark.parametrize(("kind", "size_bytes"), [("xfs", 400 * MIB), ("btrfs", 256 * MIB), ("ext4", 128 * MIB)])
def test_a_file_on_a_file_system_of_its_own(tmp_path: Path, kind: str, size_bytes: int) -> None:
    directory = state_directory(tmp_path)
    with mounted(tmp_path, kind, size_bytes) as point:
        path = str(point / "swapfile")

        class Roomy(SsdHost):
            def facts(self, path: str | None, *, look_for_zram: bool = True) -> SwapFacts:
                facts = super().facts(path, look_for_zram=look_for_zram)
                assert facts.file is not None
                assert facts.file.filesystem == kind
                assert facts.file.problem is None
                roomy = msgspec.structs.replace(facts.file, free_bytes=1 << 40)
                return msgspec.structs.replace(facts, file=roomy)

        host, wish = Roomy(directory), Swap(file=path, size="64MiB")
        assert next((view.state, view.detail) for view in swap.apply_slowly(host, directory, wish))[0] == "applied"
        assert is_swapped_on(path)
        if kind == "btrfs":
            said = subprocess.run(["lsattr", path], check=False, capture_output=True, text=True).stdout
            assert "C" in said.split()[0]
        swap_off_slowly(path)

        # After a boot the file is there and not on.
        class NextBoot(Roomy):
            def boot_id(self) -> str:
                return "the next"

        (view,) = swap.apply_slowly(NextBoot(directory), directory, wish)
        assert view.state == "applied"
        assert "found again" in view.detail
        assert is_swapped_on(path)
        assert [view.state for view in swap.rollback_slowly(NextBoot(directory), directory)] == ["restored"]
        assert [name for name in os.listdir(point) if name != "lost+found"] == []


def test_a_file_system_that_is_full_gets_everything_back(tmp_path: Path) -> None:
    directory = state_directory(tmp_path)
    with mounted(tmp_path, "ext4", 64 * MIB) as point:
        host = SsdHost(directory)
        (step,) = swap.plan(host, directory, Swap(file=str(point / "swapfile"), size="64MiB"))
        assert "not enough room" in step.reason

        class Boastful(SsdHost):
            def facts(self, path: str | None, *, look_for_zram: bool = True) -> SwapFacts:
                facts = super().facts(path, look_for_zram=look_for_zram)
                assert facts.file is not None
                return msgspec.structs.replace(facts, file=msgspec.structs.replace(facts.file, free_bytes=1 << 40))

        (view,) = swap.apply_slowly(Boastful(directory), directory, Swap(file=str(point / "swapfile"), size="64MiB"))
        assert view.state == "failed"
        assert "no room left" in view.detail
        assert os.listdir(point) == ["lost+found"]
        assert os.listdir(directory) == []


def test_zram(tmp_path: Path) -> None:
    if not zram_loaded():
        pytest.skip("this kernel has no zram, or it is not loaded")
    directory = state_directory(tmp_path)
    host, wish = SsdHost(directory), Swap(zram="64MiB")
    if [step.kind for step in swap.plan(host, directory, wish)] == ["already"]:
        pytest.skip("this machine has a zram swap of its own")
    before = zram_numbers()
    (view,) = swap.apply_slowly(host, directory, wish)
    assert (view.name, view.state, view.now) == ("swap zram", "applied", "64.0 MiB")
    (number,) = set(zram_numbers()) - set(before)
    (row,) = [each for each in read_swaps() or () if each.name == f"/dev/zram{number}"]
    assert (row.size_bytes, row.priority) == (64 * MIB - mmap.PAGESIZE, 100)
    assert [each.state for each in swap.verify(host, directory, swap.plan(host, directory, wish))] == ["applied"]
    assert [each.state for each in swap.rollback_slowly(host, directory)] == ["restored"]
    assert zram_numbers() == before
    assert os.listdir(directory) == []


def test_a_device_that_somebody_set_up_anew_is_left_alone(tmp_path: Path) -> None:
    if not zram_loaded():
        pytest.skip("this kernel has no zram, or it is not loaded")
    directory, fs = state_directory(tmp_path), RealFS()
    host, wish = SsdHost(directory), Swap(zram="64MiB")
    if [step.kind for step in swap.plan(host, directory, wish)] == ["already"]:
        pytest.skip("this machine has a zram swap of its own")
    before = zram_numbers()
    swap.apply_slowly(host, directory, wish)
    (number,) = set(zram_numbers()) - set(before)
    swap_off_slowly(f"/dev/zram{number}")
    host.remove_zram(number)
    assert host.add_zram() == number  # the same number, at once
    try:
        fs.write_text(f"/sys/block/zram{number}/disksize", str(64 * MIB))
        assert [each.state for each in swap.rollback_slowly(host, directory)] == ["drifted"]
        assert number in zram_numbers()
    finally:
        host.remove_zram(number)


_CHANGES = (
    "create_file",
    "fill_file",
    "make_signature",
    "move_into_place",
    "swap_on",
    "add_zram",
    "set_up_zram",
    "swap_off_slowly",
    "remove_file",
    "remove_zram",
)


def dying(directory: str, at: int) -> SsdHost:
    """The real machine for a process that is killed right after its change number `at`."""
    host, count = SsdHost(directory), itertools.count(1)

    def deadly(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            result = change(*arguments, **named)
            if next(count) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return run

    for name in _CHANGES:
        setattr(host, name, deadly(getattr(host, name)))
    return host


def killed(run: Callable[[SsdHost], object], directory: str, at: int) -> bool:
    """Whether a child process that runs this was killed before its end."""
    pid = os.fork()
    if pid == 0:
        try:
            run(dying(directory, at))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def test_killed_after_each_change_to_the_real_kernel(tmp_path: Path) -> None:
    directory, path = state_directory(tmp_path), str(tmp_path / "swapfile")
    wish = Swap(file=path, size="64MiB", zram="64MiB" if zram_loaded() else None)
    host, before = SsdHost(directory), (read_swaps(), zram_numbers())
    if any(step.kind != "make" for step in swap.plan(host, directory, wish)):
        pytest.skip("this machine has a zram swap of its own, or the test directory cannot hold a swap file")
    made, at = 0, 1
    while killed(lambda host: swap.apply_slowly(host, directory, wish), directory, at):
        assert {view.state for view in swap.rollback_slowly(host, directory)} == {"restored"}
        assert os.listdir(tmp_path) == ["state"]
        assert os.listdir(directory) == []
        assert (read_swaps(), zram_numbers()) == before
        made, at = at, at + 1
    assert made >= 5
    at = 1
    while killed(lambda host: swap.rollback_slowly(host, directory), directory, at):
        swap.rollback_slowly(host, directory)
        assert (os.listdir(tmp_path), os.listdir(directory)) == (["state"], [])
        assert (read_swaps(), zram_numbers()) == before
        swap.apply_slowly(host, directory, wish)
        at += 1
    assert at > 2
    assert (read_swaps(), zram_numbers()) == before


_EATER = """
import mmap, os, sys
with open(sys.argv[1], "w") as procs: procs.write("0")
memory = mmap.mmap(-1, int(sys.argv[2]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
page = os.urandom(4096)
for _ in range(len(memory) // 4096): memory.write(page)
print("full", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def eater(cgroup: str, size_bytes: int) -> Iterator[subprocess.Popen[str]]:
    """A process in the cgroup that has so much memory of its own."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _EATER, f"{cgroup}/cgroup.procs", str(size_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "full\n"
            yield process
        finally:
            process.kill()


def swapped_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmSwap"))


def test_what_is_swapped_out_is_kept_until_it_fits_and_given_back_then(tmp_path: Path) -> None:
    hierarchy = writable_hierarchy()
    if hierarchy is None:
        pytest.skip("no writable memory cgroup hierarchy")
    if read_swaps():
        pytest.skip("this machine has swap of its own, which would take the pages")
    directory, path = state_directory(tmp_path), str(tmp_path / "swapfile")
    if under_file(directory).filesystem not in ("ext4", "xfs", "btrfs"):
        pytest.skip("the test directory is on a file system that cannot hold a swap file")
    host = SsdHost(directory)
    with own_cgroup(32 * MIB) as cgroup:
        assert [view.state for view in swap.apply_slowly(host, directory, Swap(file=path, size="64MiB"))] == ["applied"]
        with eater(cgroup, 48 * MIB) as process:
            assert swapped_kib(process.pid) > 10 * 1024
            used = used_bytes(path)
            assert used is not None
            assert used > 10 * MIB
            # Swapping off now would let the kernel kill it: its cgroup has no room.
            assert any(cgroup in each for each in tight_cgroups())
            (view,) = swap.rollback_slowly(host, directory)
            assert view.state == "failed"
            assert cgroup in view.detail
            assert is_swapped_on(path)
            assert process.poll() is None

            Path(cgroup, LIMIT_FILE[hierarchy.version]).write_text(str(256 * MIB), encoding="ascii")
            assert not any(cgroup in each for each in tight_cgroups())
            (view,) = swap.rollback_slowly(host, directory)
            assert view.state == "restored"
            assert swapped_kib(process.pid) == 0
            assert process.poll() is None
    assert not os.path.lexists(path)


def test_swapping_off_what_is_not_on_and_waiting_no_longer_than_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(OSError, match="Invalid argument") as caught:
        swap_off_slowly(str(path))
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="No such file"):
        swap_off_slowly(str(tmp_path / "absent"))
    with pytest.raises(OSError, match="Invalid argument"):
        swap_on(str(path), None)


def test_a_file_that_the_list_names_otherwise(tmp_path: Path) -> None:
    """In another mount namespace, or below a bind mount, /proc/swaps has a name that means nothing here."""
    directory, path = state_directory(tmp_path), str(tmp_path / "swapfile")
    if under_file(directory).filesystem not in ("ext4", "xfs", "btrfs") or shutil.which("unshare") is None:
        pytest.skip("needs unshare and a file system that can hold a swap file")
    host = SsdHost(directory)
    other = tmp_path / "other"
    other.mkdir()
    script = 'mount --bind "$1" "$2" && swapoff "$3" && swapon "$2/swapfile" && cat /proc/swaps'
    assert [view.state for view in swap.apply_slowly(host, directory, Swap(file=path, size="64MiB"))] == ["applied"]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(tmp_path), str(other), path],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    names = [each.name for each in read_swaps() or ()]
    assert path not in names
    assert is_swapped_on(path)
    assert used_bytes(path) == 0
    steps = swap.plan(host, directory, Swap(file=path, size="64MiB"))
    assert [view.state for view in swap.verify(host, directory, steps)] == ["applied"]
    assert [view.state for view in swap.rollback_slowly(host, directory)] == ["restored"]
    assert not os.path.lexists(path)
