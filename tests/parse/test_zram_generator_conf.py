from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.zram_generator_conf import ZramDevice, parse_zram_generator


def test_devices_with_their_lines() -> None:
    text = "# comment\n[zram0]\nzram-size = min(ram / 2, 4096)\n[other]\nzram-size=1\n[zram1]\nmount-point = /var/tmp\n"
    assert parse_zram_generator(text) == (
        ZramDevice("zram0", "min(ram / 2, 4096)", True, 2),
        ZramDevice("zram1", None, False, 6),
    )


def test_an_empty_section_makes_swap_and_a_section_may_be_continued() -> None:
    assert parse_zram_generator("[zram3]\n[zram4]\nfs-type=ext4\n[zram3]\nfs-type=swap\nzram-size=ram") == (
        ZramDevice("zram3", "ram", True, 1),
        ZramDevice("zram4", None, False, 2),
    )


def test_text_without_devices() -> None:
    assert parse_zram_generator("zram-size=1\n[zram]\n[zramx]\n[ zram0\n") == ()


@given(st.text(st.sampled_from("[]zram0=\n #size-fs"), max_size=80))
def test_any_text_is_answered(text: str) -> None:
    names = [device.name for device in parse_zram_generator(text)]
    assert len(names) == len(set(names))
