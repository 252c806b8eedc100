from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_process_looks import process

from moetuned.host.process_looks import proc_directory
from moetuned.host.top_readers import Readers

MIB = 1 << 20


def io(count: int) -> str:
    return f"rchar: 9\nread_bytes: {count}\nwrite_bytes: 0\n"


class Rig:
    def __init__(self, root: Path) -> None:
        self.root, self.now, self.readers = root, 100.0, Readers()

    def set(self, pid: int, read: int, **who: object) -> None:
        process(self.root, pid, io=io(read), **who)  # type: ignore[arg-type]

    def end(self, pid: int) -> None:
        directory = self.root / "proc" / str(pid)
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()

    def look(self) -> list[tuple[str | None, int]]:
        self.now += 10
        with proc_directory(str(self.root)) as proc:
            found = self.readers.look(proc, proc.pids(), self.now)
        return [(None if one.who is None else one.who.name, one.read_bytes) for one in found]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.set(1, 500 * MIB, name="systemd", parent=0)
    rig.set(10, 900 * MIB, name="rsync")
    rig.set(11, 5 * MIB, name="bash")
    return rig


def test_who_read_since_the_look_before_most_first(rig: Rig) -> None:
    assert rig.look() == [], "what was read before the first look says nothing"
    rig.set(10, 950 * MIB, name="rsync")
    rig.set(11, 14 * MIB, name="bash")
    rig.set(12, 100 * MIB, name="cat", parent=11)
    assert rig.look() == [("cat", 100 * MIB), ("rsync", 50 * MIB)], "1 MB/s and less is nothing"
    assert rig.look() == []


def test_a_pid_that_is_used_again_is_another_process(rig: Rig) -> None:
    rig.look()
    rig.set(10, 60 * MIB, name="tar")
    assert rig.look() == [("tar", 60 * MIB)]


def test_what_an_ended_child_read_is_its_parents_once(rig: Rig) -> None:
    rig.look()
    rig.set(12, 300 * MIB, name="cat", parent=11)
    assert rig.look() == [("cat", 300 * MIB)]
    rig.end(12)
    rig.set(11, 5 * MIB + 340 * MIB, name="bash")
    assert rig.look() == [("bash", 40 * MIB)]


def test_one_that_began_and_ended_between_two_looks_is_its_parents(rig: Rig) -> None:
    rig.look()
    rig.set(11, 305 * MIB, name="backup.sh", cgroup="0::/system.slice/backup.service\n")
    assert rig.look() == [("backup.sh", 300 * MIB)]


def test_what_init_collected_has_ended(rig: Rig) -> None:
    rig.look()
    rig.set(1, 900 * MIB, name="systemd", parent=0)
    assert rig.look() == [(None, 400 * MIB)]


def test_a_kernel_thread_reads_for_somebody_else(rig: Rig) -> None:
    rig.look()
    rig.set(20, 100 * MIB, name="kworker/u4:1-loop", parent=2)
    rig.set(21, 100 * MIB, name="nfsd", parent=2)
    assert rig.look() == [("nfsd", 100 * MIB)]


@pytest.mark.parametrize("text", ["", "read_bytes: ", "read_bytes: x\n", "\0" * 99, "read_bytes: 1"])
def test_counters_that_tell_nothing_are_nobodys(rig: Rig, text: str) -> None:
    rig.look()
    (rig.root / "proc/10/io").write_text(text)
    assert rig.look() == []


@pytest.mark.kernel
def test_a_shell_has_read_what_its_ended_child_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"x" * (24 << 20))
    script = 'sync "$1"; read go; dd if="$1" of=/dev/null bs=1M iflag=direct 2>&1; echo done; read end'
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        readers = Readers()
        with proc_directory() as proc:
            readers.look(proc, [shell.pid], 0.0)
            shell.stdin.write("go\n")
            shell.stdin.flush()
            said = []
            while (line := shell.stdout.readline().strip()) != "done":
                said.append(line)
            found = readers.look(proc, [shell.pid], 1.0)
        shell.stdin.write("end\n")
        shell.stdin.flush()
    if any("Invalid argument" in line for line in said):
        pytest.skip("the file system of temporary files has no direct reads")
    assert [(one.who.name if one.who else None, one.read_bytes >= 24 << 20) for one in found] == [("sh", True)]
