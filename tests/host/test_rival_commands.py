from __future__ import annotations

from fakes.fake_kernel import FakeKernel, Text

from moetuned.host.rival_commands import from_boot_commands, from_sysfsutils
from moetuned.schema.rival import Rival

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
UNIT = f"[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo never | tee {THP} > /dev/null'\n"


def tree(**files: str) -> FakeKernel:
    return FakeKernel({path: Text(text) for path, text in files.items()})


def test_a_service_that_turns_huge_pages_off() -> None:
    path = "/etc/systemd/system/disable-thp.service"
    found = list(from_boot_commands(tree(**{path: UNIT, "/etc/systemd/system/x.timer": UNIT}), print))
    assert found == [Rival(f"{path} line 3", THP, "never", "when the service starts", file=path)]


def test_a_service_in_etc_replaces_its_namesake() -> None:
    files = {"/etc/systemd/system/a.service": "", "/usr/local/lib/systemd/system/a.service": UNIT}
    assert list(from_boot_commands(tree(**files), print)) == []


def test_rc_local() -> None:
    (rival,) = from_boot_commands(tree(**{"/etc/rc.local": "#!/bin/sh\nblockdev --setra 256 /dev/sda\n"}), print)
    assert (rival.what, rival.path, rival.value) == (
        "/etc/rc.local line 2",
        "/sys/block/sda/queue/read_ahead_kb",
        "128",
    )


def test_sysfsutils_where_it_is_installed() -> None:
    files = {
        "/etc/sysfs.conf": "# kernel/mm/a = 1\nkernel/mm/transparent_hugepage/enabled = never # why\n",
        "/etc/sysfs.d/b.conf": "block/sda/queue/scheduler=bfq\nmode class/x = 0644\nnonsense\n",
    }
    assert list(from_sysfsutils(tree(**files), print)) == []
    found = from_sysfsutils(tree(**files, **{"/usr/bin/systool": ""}), print)
    assert [(rival.what, rival.path, rival.value) for rival in found] == [
        ("/etc/sysfs.conf line 2", THP, "never"),
        ("/etc/sysfs.d/b.conf line 1", "/sys/block/sda/queue/scheduler", "bfq"),
    ]
