from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.cli import top_others
from moetuned.cli.top_others import Others

MIB = 1 << 20


class Machine:
    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 100.0
        self.others = Others(str(root), lambda: self.now)
        (root / "proc").mkdir()

    def process(
        self, pid: int, name: str, read: int = 0, anonymous: int = 0, parent: int = 1, cgroup: str = "0::/\n"
    ) -> None:
        directory = self.root / "proc" / str(pid)
        directory.mkdir(exist_ok=True)
        rest = ["S", str(parent), *["0"] * 17, str(pid * 10), *["0"] * 10]
        (directory / "stat").write_text(f"{pid} ({name}) {' '.join(rest)}\n")
        (directory / "cgroup").write_text(cgroup)
        (directory / "io").write_text(f"read_bytes: {read}\n")
        (directory / "statm").write_text(f"1 {anonymous // 4096} 0 0 0 0 0\n")
        (directory / "status").write_text(f"RssAnon: {anonymous // 1024} kB\nVmSwap: 0 kB\n")

    def look(self, *without: int, after: float = 4.0) -> tuple[str, ...]:
        self.now += after
        return self.others.look(without)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    it = Machine(tmp_path)
    it.process(1, "systemd", parent=0)
    it.process(812, "rsync", 100 * MIB, cgroup="0::/system.slice/backup.service\n")
    it.process(7, "fire\x1bfox", anonymous=500 * MIB)
    it.process(42, "llama-server", 5000 * MIB)
    it.process(43, "worker", 100 * MIB, parent=42)
    return it


def test_who_reads_and_who_grows(machine: Machine) -> None:
    assert machine.look(42) == ()
    machine.process(812, "rsync", 500 * MIB, cgroup="0::/system.slice/backup.service\n")
    machine.process(7, "fire\x1bfox", anonymous=1524 * MIB)
    machine.process(42, "llama-server", 9000 * MIB)
    machine.process(43, "worker", 900 * MIB, parent=42)
    assert machine.look(42) == (
        "rsync (pid 812, backup.service) reads 105 MB/s",
        "fire?fox (pid 7) grew 1.0 GiB in 4.0 s",
    )


def test_looks_are_seldom_and_what_was_found_stays_until_the_next(machine: Machine) -> None:
    machine.look()
    machine.process(812, "rsync", 500 * MIB)
    found = machine.look()
    assert len(found) == 1
    assert machine.look(after=1.0) == found
    assert machine.look(after=1.0) == found
    assert machine.look(after=4.0) == ()


def test_growth_is_that_of_the_last_minute(machine: Machine) -> None:
    machine.look()
    machine.process(7, "firefox", anonymous=700 * MIB)
    assert machine.look() == ("firefox (pid 7) grew 200 MiB in 4.0 s",)
    assert machine.look(after=50) == ("firefox (pid 7) grew 200 MiB in 54 s",)
    assert machine.look(after=20) == ()


def test_who_may_not_see_is_told_so(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_others.Readers, "look", lambda self, *_: setattr(self, "unseen", 3) or ())
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    machine.look()
    assert machine.look() == ("who reads can only be seen by root",)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert machine.look() == ()


def test_without_proc_it_says_so(tmp_path: Path) -> None:
    assert Others(str(tmp_path), lambda: 0.0).look(()) == ("cannot be seen: No such file or directory",)
