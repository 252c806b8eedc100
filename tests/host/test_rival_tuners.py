from __future__ import annotations

import pytest
from fakes.fake_kernel import FakeKernel, Text

from moetuned.host.rival_tuners import from_laptop_mode_tools, from_tlp, from_tuned, from_zram_generator
from moetuned.schema.rival import Rival
from moetuned.schema.tunable import Bound

SERVER = "[main]\nsummary=x\n[disk]\nreadahead=>4096\n[sysctl]\nvm.dirty_ratio=40\n"
READ_AHEAD = "/sys/block/*/queue/read_ahead_kb"


def tree(**files: str) -> FakeKernel:
    return FakeKernel({path: Text(text) for path, text in files.items()})


def tuned(notes: list[str] | None = None, **files: str) -> list[Rival]:
    return list(from_tuned(tree(**files), (notes if notes is not None else []).append, "x86_64"))


def test_the_active_profile_of_tuned_with_what_it_includes() -> None:
    read_ahead, dirty = tuned(
        **{
            "/etc/tuned/active_profile": "virtual-guest\n",
            "/usr/lib/tuned/virtual-guest/tuned.conf": "[main]\ninclude=throughput-performance\n[sysctl]\nvm.dirty_ratio=30",
            "/usr/lib/tuned/profiles/throughput-performance/tuned.conf": SERVER,
        }
    )
    assert read_ahead.what == "tuned, profile virtual-guest"
    assert (read_ahead.path, read_ahead.value, read_ahead.bound) == (READ_AHEAD, "4096", Bound.AT_LEAST)
    assert (dirty.path, dirty.value) == ("/proc/sys/vm/dirty_ratio", "30")
    assert (read_ahead.gives_way, dirty.gives_way) == (False, True)


@pytest.mark.parametrize("active", ["", "\n", None])
def test_tuned_without_an_active_profile_sets_nothing(active: str | None) -> None:
    files = {"/usr/lib/tuned/x/tuned.conf": SERVER}
    assert tuned(**files if active is None else files | {"/etc/tuned/active_profile": active}) == []


def test_a_profile_of_the_administrators_own_may_include_its_namesake() -> None:
    found = tuned(
        **{
            "/etc/tuned/active_profile": "srv",
            "/etc/tuned/profile_mode": "auto\n",
            "/etc/tuned/srv/tuned.conf": "[main]\ninclude=srv\n[sysctl]\nvm.dirty_ratio=9\n",
            "/usr/lib/tuned/srv/tuned.conf": SERVER,
        }
    )
    assert [(rival.path, rival.value) for rival in found] == [(READ_AHEAD, "4096"), ("/proc/sys/vm/dirty_ratio", "9")]
    assert found[0].what == "tuned, profile srv (chosen by itself)"


def test_several_active_profiles_the_last_wins() -> None:
    found = tuned(
        **{
            "/etc/tuned/active_profile": "a b",
            "/usr/lib/tuned/a/tuned.conf": "[sysctl]\nvm.x=1\n",
            "/usr/lib/tuned/b/tuned.conf": "[sysctl]\nvm.x=2\n",
        }
    )
    assert [(rival.what, rival.value) for rival in found] == [("tuned, profile a b", "2")]


@pytest.mark.parametrize(("said", "gives_way"), [("0", False), ("no", False), ("1", True), ("true", True)])
def test_whether_sysctl_d_wins_over_tuned(said: str, gives_way: bool) -> None:
    (rival,) = tuned(
        **{
            "/etc/tuned/active_profile": "a",
            "/etc/tuned/tuned-main.conf": f"daemon = 1\nreapply_sysctl = {said}\n",
            "/usr/lib/tuned/a/tuned.conf": "[sysctl]\nvm.x=1\n",
        }
    )
    assert rival.gives_way is gives_way


@pytest.mark.parametrize(
    ("profile", "note"),
    [
        ("[main]\ninclude=${f:virt_check:a:b}\n", "only known when tuned runs"),
        ("[main]\ninclude=../../etc\n", "only known when tuned runs"),
        ("[main]\ninclude=gone\n", "profile gone is in none of"),
        ("nonsense\n", "/usr/lib/tuned/a/tuned.conf: "),
        ("[main]\ninclude=-gone\n", None),
        ("[main]\ninclude=a\n", None),
    ],
)
def test_what_is_not_known_of_a_profile_is_a_note(profile: str, note: str | None) -> None:
    notes: list[str] = []
    assert tuned(notes, **{"/etc/tuned/active_profile": "a", "/usr/lib/tuned/a/tuned.conf": profile}) == []
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


def test_tuned_leaves_huge_pages_to_the_kernel_command_line() -> None:
    files = {
        "/etc/tuned/active_profile": "a",
        "/usr/lib/tuned/a/tuned.conf": "[vm]\ntransparent_hugepages=always\ntransparent_hugepage.defrag=never\n",
    }
    assert [rival.value for rival in tuned(**files)] == ["always", "never"]
    assert [rival.value for rival in tuned(**files, **{"/proc/cmdline": "a transparent_hugepage=madvise"})] == ["never"]


TLP = "TLP_ENABLE=1\nDISK_IDLE_SECS_ON_AC=0\nDISK_IDLE_SECS_ON_BAT=2\nMAX_LOST_WORK_SECS_ON_BAT=60\n"


def test_tlp_with_its_files_in_order() -> None:
    kernel = tree(
        **{
            "/usr/share/tlp/defaults.conf": TLP + 'DISK_DEVICES="sda nvme0n1"\nDISK_IOSCHED="keep keep"\n',
            "/etc/tlp.d/50-x.conf": 'DISK_DEVICES="sda ata-X gone"\nDISK_IOSCHED="bfq none kyber"\n',
            "/etc/tlp.conf": "MAX_LOST_WORK_SECS_ON_BAT=30\n",
            "/sys/block/sda/size": "1\n",
            "/dev/sdb": "",
        }
    )
    kernel.links["/dev/disk/by-id/ata-X"] = "/dev/sdb"
    found = [(rival.what, rival.path, rival.value) for rival in from_tlp(kernel, print)]
    assert found == [
        ("TLP on mains", "/proc/sys/vm/laptop_mode", "0"),
        ("TLP on battery", "/proc/sys/vm/laptop_mode", "2"),
        ("TLP on battery", "/proc/sys/vm/dirty_writeback_centisecs", "3000"),
        ("TLP on battery", "/proc/sys/vm/dirty_expire_centisecs", "3000"),
        ("TLP, DISK_IOSCHED", "/sys/block/sda/queue/scheduler", "bfq"),
        ("TLP, DISK_IOSCHED", "/sys/block/sdb/queue/scheduler", "none"),
    ]


def test_tlp_that_is_off_or_removed_sets_nothing() -> None:
    assert list(from_tlp(tree(**{"/etc/tlp.conf": TLP}), print)) == []
    off = tree(**{"/usr/share/tlp/defaults.conf": TLP, "/etc/tlp.conf": "TLP_ENABLE=0"})
    assert list(from_tlp(off, print)) == []


def test_laptop_mode_tools_on_mains_and_on_battery() -> None:
    text = (
        "ENABLE_LAPTOP_MODE_ON_AC=0\nLM_DIRTY_RATIO=60\nNOLM_DIRTY_RATIO=40\nLM_DIRTY_BACKGROUND_RATIO=1\n"
        "NOLM_DIRTY_BACKGROUND_RATIO=10\nCONTROL_READAHEAD=1\nLM_READAHEAD=3072\nNOLM_READAHEAD=128\n"
        'HD="/dev/[hs]d[abcdefgh]"\nLM_SECONDS_BEFORE_SYNC=2\n'
    )
    kernel = tree(**{"/usr/sbin/laptop_mode": "", "/etc/laptop-mode/laptop-mode.conf": text})
    found = {(rival.what, rival.path): rival.value for rival in from_laptop_mode_tools(kernel, print)}
    assert found["laptop-mode-tools on mains", "/proc/sys/vm/dirty_ratio"] == "40"
    assert found["laptop-mode-tools on battery", "/proc/sys/vm/dirty_ratio"] == "60"
    assert found["laptop-mode-tools on mains", "/proc/sys/vm/laptop_mode"] == "0"
    assert found["laptop-mode-tools on battery", "/sys/block/[hs]d[abcdefgh]/queue/read_ahead_kb"] == "3072"
    assert found["laptop-mode-tools on mains", "/sys/block/dm-*/queue/read_ahead_kb"] == "128"


def test_laptop_mode_tools_that_is_off_or_removed_sets_nothing() -> None:
    text = "LM_DIRTY_RATIO=60\n"
    assert list(from_laptop_mode_tools(tree(**{"/etc/laptop-mode/laptop-mode.conf": text}), print)) == []
    off = {"/usr/sbin/laptop_mode": "", "/etc/laptop-mode/laptop-mode.conf": f"{text}ENABLE_LAPTOP_MODE_TOOLS=0\n"}
    assert list(from_laptop_mode_tools(tree(**off), print)) == []


def test_zram_generator_where_it_is_installed() -> None:
    files = {
        "/etc/systemd/zram-generator.conf": "[zram0]\n",
        "/usr/lib/systemd/zram-generator.conf": "[zram9]\n",
        "/etc/systemd/zram-generator.conf.d/a.conf": "[zram1]\nfs-type=ext4\n[zram2]\n",
    }
    assert list(from_zram_generator(tree(**files), print)) == []
    kernel = tree(**files, **{"/usr/lib/systemd/system-generators/zram-generator": ""})
    found = [(rival.what, rival.path, rival.value) for rival in from_zram_generator(kernel, print)]
    assert found == [
        ("zram-generator, /etc/systemd/zram-generator.conf line 1", "/proc/swaps", "/dev/zram0"),
        ("zram-generator, /etc/systemd/zram-generator.conf.d/a.conf line 3", "/proc/swaps", "/dev/zram2"),
    ]
