from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as property_settings
from hypothesis import strategies as st

from moetuned.parse.tuned_profile import Profile, TunedSetting, merged, parse_tuned_profile, settings
from moetuned.schema.tunable import Bound

THP = "/sys/kernel/mm/transparent_hugepage/enabled"

SERVER = """
[main]
summary=Broad
[variables]
arm=CPU part
[vm.arm]
type=vm
uname_regex=aarch64
transparent_hugepages=never
[disk]
readahead=>4096  # KiB
[sysctl]
vm.dirty_ratio = 40
vm.swappiness=10
net.core.somaxconn=>2048
"""


def found(*texts: str, machine: str = "x86_64") -> dict[str, tuple[str | None, Bound]]:
    profile = merged([parse_tuned_profile(text) for text in texts])
    return {setting.path: (setting.value, setting.bound) for setting in settings(profile, machine)}


def test_a_server_profile() -> None:
    assert found(SERVER) == {
        "/sys/block/*/queue/read_ahead_kb": ("4096", Bound.AT_LEAST),
        "/proc/sys/vm/dirty_ratio": ("40", Bound.SET),
        "/proc/sys/vm/swappiness": ("10", Bound.SET),
        "/proc/sys/net/core/somaxconn": ("2048", Bound.AT_LEAST),
    }
    assert found(SERVER, machine="aarch64")[THP] == ("never", Bound.SET)


def test_includes_and_a_guest_over_its_server() -> None:
    guest = "[main]\ninclude=throughput-performance ; -extra, base\n[sysctl]\nvm.dirty_ratio = 30\n"
    assert parse_tuned_profile(guest).includes == ("throughput-performance", "-extra", "base")
    assert found(SERVER, guest)["/proc/sys/vm/dirty_ratio"] == ("30", Bound.SET)
    assert found(SERVER, guest)["/proc/sys/vm/swappiness"] == ("10", Bound.SET)


def test_replace_drop_and_disabled_units() -> None:
    assert "/proc/sys/vm/swappiness" not in found(SERVER, "[sysctl]\nreplace=1\nvm.dirty_ratio=1")
    dropped = found(SERVER, "[sysctl]\ndrop=vm.swappiness, net.core.somaxconn\nvm.dirty_ratio=2")
    assert {path for path in dropped if path.startswith("/proc")} == {"/proc/sys/vm/dirty_ratio"}
    assert "/sys/block/*/queue/read_ahead_kb" not in found(SERVER, "[disk]\nenabled=false")


@pytest.mark.parametrize(
    ("unit", "setting"),
    [
        ("[vm]\ntransparent_hugepages=always", TunedSetting(THP, "always", plugin="vm")),
        ("[vm]\ntransparent_hugepage=never", TunedSetting(THP, "never", plugin="vm")),
        (
            "[vm]\ntransparent_hugepage.defrag=defer+madvise",
            TunedSetting("/sys/kernel/mm/transparent_hugepage/defrag", "defer+madvise", plugin="vm"),
        ),
        ("[vm]\ndirty_bytes=10%", TunedSetting("/proc/sys/vm/dirty_ratio", "10", plugin="vm")),
        (
            "[vm]\ndirty_background_bytes = 67108864",
            TunedSetting("/proc/sys/vm/dirty_background_bytes", "67108864", plugin="vm"),
        ),
        ("[disk]\nreadahead=8192 s", TunedSetting("/sys/block/*/queue/read_ahead_kb", "4096", plugin="disk")),
        ("[disk]\nreadahead_multiply=4", TunedSetting("/sys/block/*/queue/read_ahead_kb", None, plugin="disk")),
        (
            "[d1]\ntype=disk\ndevices=nvme*\nelevator=none",
            TunedSetting("/sys/block/nvme*/queue/scheduler", "none", plugin="disk"),
        ),
        (
            "[disk]\ndevices=!sda\nelevator=none",
            TunedSetting("/sys/block/*/queue/scheduler", "none", only="devices=!sda", plugin="disk"),
        ),
        (
            "[sysfs]\n/sys/kernel/mm/lru_gen/min_ttl_ms=1000",
            TunedSetting("/sys/kernel/mm/lru_gen/min_ttl_ms", "1000", plugin="sysfs"),
        ),
        ("[sysctl]\nvm.swappiness=${mine}", TunedSetting("/proc/sys/vm/swappiness", None)),
        ("[sysctl]\nvm.swappiness=<10", TunedSetting("/proc/sys/vm/swappiness", "10", Bound.AT_MOST)),
        ('[sysctl]\nvm.swappiness="5"', TunedSetting("/proc/sys/vm/swappiness", "5")),
        (
            "[sysctl]\ncpuinfo_regex=AMD\nvm.swappiness=5",
            TunedSetting("/proc/sys/vm/swappiness", "5", only="cpuinfo_regex=AMD"),
        ),
        (
            "[sysctl]\nuname_regex=x.*\nvm.swappiness=5",
            TunedSetting("/proc/sys/vm/swappiness", "5", only="uname_regex=x.*"),
        ),
    ],
)
def test_what_a_unit_sets(unit: str, setting: TunedSetting) -> None:
    assert settings(parse_tuned_profile(unit), "x86_64") == (setting,)


def test_a_list_of_devices() -> None:
    text = "[disk]\ndevices=sda, nvme0n1 ${more}\nelevator=none"
    assert set(found(text)) == {f"/sys/block/{name}/queue/scheduler" for name in ("sda", "nvme0n1", "*")}


def test_units_of_other_plugins_set_nothing_of_ours() -> None:
    assert found("[cpu]\ngovernor=performance\n[vm]\nother=1\n[sysfs]\nrelative=1\n[script]\nscript=x.sh") == {}


def test_a_file_that_tuned_refuses_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match="no section headers"):
        parse_tuned_profile("vm.swappiness=1")


@pytest.mark.parametrize("text", ["[a]\nb" + " " * 5000 + "c", "[main]\ninclude=a\n" + " b\n" * 3000])
def test_endless_lines_and_values_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 4096 characters"):
        parse_tuned_profile(text)


def test_nothing_is_nothing() -> None:
    assert merged([]) == Profile()
    assert settings(parse_tuned_profile(""), "x86_64") == ()


@property_settings(deadline=None)
@given(st.text())
def test_any_text_is_answered_or_refused(text: str) -> None:
    try:
        profile = parse_tuned_profile(text)
    except ValueError:
        return
    assert merged([profile, profile]) == merged([profile])
    settings(profile, "x86_64")


@property_settings(deadline=None)
@given(st.text(st.sampled_from("[]=\n >${}sysctlvmdisk%,!*#"), max_size=80))
def test_text_that_looks_like_a_profile_is_answered_or_refused(text: str) -> None:
    try:
        profile = parse_tuned_profile(text)
    except ValueError:
        return
    assert settings(merged([profile]), "") == settings(profile, "")
