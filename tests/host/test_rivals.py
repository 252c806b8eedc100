from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from fakes.fake_kernel import FakeKernel, Text
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moetuned.decide.rival_match import rivals_of
from moetuned.host import rivals
from moetuned.host.fs import RealFS
from moetuned.host.rivals import look_for_rivals

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
FILES = {
    "/proc/cmdline": "sysctl.vm.dirty_ratio=5\n",
    "/etc/sysctl.d/99-x.conf": "vm.dirty_ratio = 40\n",
    "/etc/udev/rules.d/a.rules": 'SYSCTL{vm/dirty_ratio}="6"\n',
    "/etc/tmpfiles.d/a.conf": "w /proc/sys/vm/dirty_ratio - - - - 7\n",
    "/etc/tuned/active_profile": "p\n",
    "/usr/lib/tuned/p/tuned.conf": "[sysctl]\nvm.dirty_ratio=8\n",
    "/usr/sbin/laptop_mode": "",
    "/etc/laptop-mode/laptop-mode.conf": "LM_DIRTY_RATIO=9\nNOLM_DIRTY_RATIO=9\n",
    "/etc/systemd/system/dirty.service": "[Service]\nExecStart=/bin/sh -c 'sysctl -w vm.dirty_ratio=10'\n",
    "/usr/bin/systool": "",
    "/etc/sysfs.conf": "kernel/mm/transparent_hugepage/enabled = never\n",
    "/usr/share/tlp/defaults.conf": "TLP_ENABLE=1\nDISK_IDLE_SECS_ON_AC=1\n",
    "/usr/lib/systemd/system-generators/zram-generator": "",
    "/etc/systemd/zram-generator.conf": "[zram0]\n",
}


def test_everybody_is_found_in_the_order_of_the_boot() -> None:
    kernel = FakeKernel({path: Text(text) for path, text in FILES.items()})
    found = look_for_rivals(kernel, "x86_64")
    assert found.notes == ()
    values = [rival.value for rival in rivals_of(found.rivals, ["/proc/sys/vm/dirty_ratio"])]
    assert values == ["5", "40", "6", "7", "10", "8", "9", "9"]
    assert {rival.path for rival in found.rivals} >= {"/proc/swaps", "/proc/sys/vm/laptop_mode", THP}


def test_a_machine_where_nothing_can_be_read_has_notes_and_no_rivals() -> None:
    kernel = FakeKernel({path: Text(text) for path, text in FILES.items()})

    def refuse(operation: str, path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    kernel.before = refuse
    found = look_for_rivals(kernel)
    assert found.rivals == ()
    assert any("/etc/sysctl.d/99-x.conf" in note for note in found.notes)


def test_an_empty_machine() -> None:
    assert look_for_rivals(FakeKernel()).rivals == ()
    assert look_for_rivals(FakeKernel()).notes == ()


def test_this_machine_can_be_looked_at() -> None:
    for rival in look_for_rivals(RealFS()).rivals:
        assert rival.path.startswith(("/proc/", "/sys/"))
        assert rival.what


TEXTS = st.text(max_size=60) | st.sampled_from(
    ["vm.* = 1\0", "a/\0*=1", "../*=2", "[sysctl]\nvm.x=>9", 'DISK_DEVICES="../a \0"\nDISK_IOSCHED="a b"', "9" * 5000]
)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(FILES, TEXTS)))
def test_whatever_stands_in_the_files_is_answered(tmp_path: Path, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    (tmp_path / "proc/sys").mkdir(exist_ok=True)
    look_for_rivals(RealFS(str(tmp_path)))


@pytest.mark.parametrize("value", ["9" * 5000, "\u0663", ""])
def test_numbers_that_are_none(tmp_path: Path, value: str) -> None:
    file = tmp_path / "usr/share/tlp/defaults.conf"
    file.parent.mkdir(parents=True)
    file.write_text(f"TLP_ENABLE=1\nMAX_LOST_WORK_SECS_ON_AC={value}\n")
    assert look_for_rivals(RealFS(str(tmp_path))).rivals == ()


def test_a_fifo_among_the_files_does_not_hang_anybody(tmp_path: Path) -> None:
    (tmp_path / "etc/sysctl.d").mkdir(parents=True)
    os.mkfifo(tmp_path / "etc/sysctl.d/10-a.conf")
    (tmp_path / "etc/sysctl.d/20-b.conf").symlink_to("/dev/zero")
    (tmp_path / "etc/sysctl.d/30-c.conf").write_text("vm.dirty_ratio = 40\n")
    found = look_for_rivals(RealFS(str(tmp_path)))
    assert [rival.value for rival in found.rivals] == ["40"]
    assert [note.split(" cannot")[0] for note in found.notes] == ["/etc/sysctl.d/10-a.conf", "/etc/sysctl.d/20-b.conf"]


def test_so_much_is_read_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FakeKernel({f"/etc/sysctl.d/{n:02}.conf": Text(f"vm.dirty_ratio = {n}\n") for n in range(40)})
    monkeypatch.setattr(rivals, "MOST_FILES", 20)
    found = look_for_rivals(kernel)
    assert len([path for _, path, _ in kernel.log if path.endswith(".conf") and "sysctl.d" in path]) < 20
    (note,) = found.notes
    assert note.startswith("from /etc/sysctl.d/")
