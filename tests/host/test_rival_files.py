from __future__ import annotations

import errno
import os
from pathlib import Path

from fakes.fake_kernel import FakeKernel, Number, Text

from moetuned.host.fs import RealFS
from moetuned.host.rival_files import (
    from_command_line,
    from_sysctl_files,
    from_tmpfiles,
    from_udev_rules,
    names_in,
    read_config,
)
from moetuned.parse.persisted_file import with_header
from moetuned.schema.rival import Rival

THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def tree(**files: str) -> FakeKernel:
    return FakeKernel({path: Text(text) for path, text in files.items()})


def sysctls(kernel: FakeKernel, notes: list[str] | None = None) -> dict[str, tuple[str, str | None]]:
    found = from_sysctl_files(kernel, (notes if notes is not None else []).append)
    return {rival.path: (rival.what, rival.value) for rival in found}


def test_the_file_and_line_that_count_for_each_sysctl() -> None:
    kernel = tree(
        **{
            "/usr/lib/sysctl.d/50-default.conf": "vm.swappiness = 60\nvm.dirty_ratio=20\n",
            "/etc/sysctl.d/99-x.conf": "# mine\n\nvm.dirty_ratio = 40\n",
        }
    )
    assert sysctls(kernel) == {
        "/proc/sys/vm/swappiness": ("/usr/lib/sysctl.d/50-default.conf line 1", "60"),
        "/proc/sys/vm/dirty_ratio": ("/etc/sysctl.d/99-x.conf line 3", "40"),
    }


def test_a_file_in_etc_masks_its_namesake() -> None:
    kernel = tree(**{"/usr/lib/sysctl.d/a.conf": "vm.swappiness=1", "/etc/sysctl.d/a.conf": ""})
    assert sysctls(kernel) == {}


def test_a_link_to_dev_null_masks_without_a_note(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/null")  # as little a plain file as the device
    os.mkfifo(units / "other.service")
    (units / "masked.service").symlink_to(tmp_path / "dev/null")
    notes: list[str] = []
    fs = RealFS(str(tmp_path))
    assert read_config(fs, "/etc/systemd/system/masked.service", notes.append) == ""
    assert notes == []
    assert read_config(fs, "/etc/systemd/system/other.service", notes.append) is None
    assert len(notes) == 1


def test_lib_that_is_a_link_to_usr_lib_is_read_once() -> None:
    kernel = tree(**{"/usr/lib/sysctl.d/a.conf": "vm.swappiness=1"})
    kernel.links["/lib"] = "/usr/lib"
    assert sysctls(kernel) == {"/proc/sys/vm/swappiness": ("/usr/lib/sysctl.d/a.conf line 1", "1")}


def test_sysctl_conf_by_itself_and_as_a_link_of_sysctl_d() -> None:
    kernel = tree(**{"/etc/sysctl.conf": "vm.swappiness=1\n"})
    (rival,) = from_sysctl_files(kernel, print)
    assert (rival.what, rival.value) == ("/etc/sysctl.conf line 1", "1")
    assert "sysctl --system" in rival.when
    kernel.files["/etc/sysctl.d/README"] = Text("")
    kernel.links["/etc/sysctl.d/99-sysctl.conf"] = "/etc/sysctl.conf"
    kernel.files["/etc/sysctl.d/99-sysctl.conf"] = Text("")  # so that the directory lists it
    (linked,) = from_sysctl_files(kernel, print)
    assert (linked.what, linked.when) == ("/etc/sysctl.d/99-sysctl.conf line 1", "at boot")


def test_a_pattern_stands_for_the_sysctls_that_there_are() -> None:
    kernel = tree(**{"/etc/sysctl.d/a.conf": "vm.dirty_* = 1\n-vm.dirty_bytes\n../../etc/* = 1\n"})
    for name in ("dirty_ratio", "dirty_bytes", "swappiness"):
        kernel.files[f"/proc/sys/vm/{name}"] = Number(0)
    notes: list[str] = []
    assert sysctls(kernel, notes) == {"/proc/sys/vm/dirty_ratio": ("/etc/sysctl.d/a.conf line 1", "1")}
    assert notes == []


def test_a_pattern_for_too_many_is_a_note() -> None:
    kernel = tree(**{"/etc/sysctl.d/a.conf": "net.* = 1\n"})
    for number in range(2100):
        kernel.files[f"/proc/sys/net/{number}"] = Number(0)
    notes: list[str] = []
    assert sysctls(kernel, notes) == {}
    assert "too many" in notes[0]


def test_files_of_ours_are_no_rivals_until_they_are_edited() -> None:
    ours = with_header("vm.swappiness = 1\n")
    kernel = tree(**{"/etc/sysctl.d/90-moetuned.conf": ours, "/usr/lib/sysctl.d/50-x.conf": "vm.swappiness=5"})
    assert sysctls(kernel) == {}
    kernel.files["/etc/sysctl.d/90-moetuned.conf"] = Text(ours + "vm.dirty_ratio = 3\n")
    assert set(sysctls(kernel)) == {"/proc/sys/vm/swappiness", "/proc/sys/vm/dirty_ratio"}


def test_the_kernel_command_line() -> None:
    kernel = tree(**{"/proc/cmdline": "quiet transparent_hugepage=never\n"})
    (rival,) = from_command_line(kernel, print)
    assert rival == Rival(
        "the kernel command line (transparent_hugepage=never)", THP, "never", "at boot", file="/proc/cmdline"
    )


def test_tmpfiles_that_write_to_the_kernel() -> None:
    kernel = tree(
        **{
            "/etc/tmpfiles.d/thp.conf": f"w! {THP} - - - - always\nw /run/x - - - - y\n",
            "/usr/lib/tmpfiles.d/z.conf": f"w {THP} - - - - never\nw /proc/sys/vm/swappiness - - - - 1\n",
            "/etc/tmpfiles.d/moetuned.conf": with_header("w! /sys/kernel/mm/a - - - - 1\n"),
        }
    )
    first, second = from_tmpfiles(kernel, print)
    assert (first.what, first.path, first.value, first.when) == (
        "/etc/tmpfiles.d/thp.conf line 1",
        THP,
        "always",
        "at boot",
    )
    assert (second.path, "--create" in second.when) == ("/proc/sys/vm/swappiness", True)


def test_udev_rules() -> None:
    rule = 'SUBSYSTEM=="block", KERNEL=="nvme*", ATTR{queue/rotational}=="0", ATTR{queue/read_ahead_kb}="4096"\n'
    kernel = tree(
        **{"/usr/lib/udev/rules.d/60-x.rules": rule, "/etc/udev/rules.d/90-moetuned.rules": with_header(rule)}
    )
    (rival,) = from_udev_rules(kernel, print)
    assert rival == Rival(
        "udev rule /usr/lib/udev/rules.d/60-x.rules line 1",
        "/sys/block/nvme*/queue/read_ahead_kb",
        "4096",
        "when the device appears",
        file="/usr/lib/udev/rules.d/60-x.rules",
        only='ATTR{queue/rotational}=="0"',
    )


def test_a_rule_for_the_bdi_of_one_number_is_that_disks() -> None:
    rules = 'SUBSYSTEM=="bdi", KERNEL=="8:0", ATTR{read_ahead_kb}="64"\nSUBSYSTEM=="bdi", ATTR{read_ahead_kb}="32"\n'
    kernel = tree(**{"/etc/udev/rules.d/a.rules": rules, "/sys/devices/x/block/sda/size": "1\n"})
    kernel.links["/sys/dev/block/8:0"] = "/sys/devices/x/block/sda"
    paths = [rival.path for rival in from_udev_rules(kernel, print)]
    assert paths == ["/sys/block/sda/bdi/read_ahead_kb", "/sys/class/bdi/*/read_ahead_kb"]
    del kernel.links["/sys/dev/block/8:0"]
    assert next(from_udev_rules(kernel, print)).path == "/sys/class/bdi/8:0/read_ahead_kb"


def test_what_cannot_be_read_is_a_note() -> None:
    kernel = tree(**{"/etc/sysctl.d/a.conf": "vm.swappiness=1", "/big": "x" * (300 << 10)})
    kernel.fail("read", "/etc/sysctl.d/a.conf", errno.EACCES)
    notes: list[str] = []
    assert sysctls(kernel, notes) == {}
    assert "/etc/sysctl.d/a.conf cannot be read" in notes[0]
    assert read_config(kernel, "/big", notes.append) is None
    assert "larger than 256 KiB" in notes[1]
    assert read_config(kernel, "/none", notes.append) is None
    assert names_in(kernel, "/none", notes.append) == []
    assert len(notes) == 2


def test_no_more_files_than_a_machine_can_have() -> None:
    kernel = tree(**{f"/etc/sysctl.d/{number:04}.conf": f"vm.a{number}=1" for number in range(510)})
    notes: list[str] = []
    assert len(sysctls(kernel, notes)) == 500
    assert "only the first 500 of 510" in notes[0]
