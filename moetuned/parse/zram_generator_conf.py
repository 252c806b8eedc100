"""The zram devices that systemd's zram-generator makes at boot (zram-generator.conf(5))."""

from __future__ import annotations

import re

import msgspec

_SECTION = re.compile(r"\[([^\]]*)\]")
_DEVICE = re.compile(r"zram\d{1,3}")
_SWAP = "swap"


class ZramDevice(msgspec.Struct, frozen=True):
    """One section. `size` as written ("ram / 2"), None for the generator's own; `is_swap`: not a file system."""

    name: str
    size: str | None
    is_swap: bool
    line: int


def parse_zram_generator(text: str) -> tuple[ZramDevice, ...]:
    """The devices of one file in its order; sections that are no device and lines that are no option are left out."""
    lines: dict[str, int] = {}
    options: dict[str, dict[str, str]] = {}
    section = ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if header := _SECTION.fullmatch(line):
            section = header[1].strip()
            if _DEVICE.fullmatch(section):
                lines.setdefault(section, number)
                options.setdefault(section, {})
            continue
        name, equals, value = line.partition("=")
        if equals and section in options:
            options[section][name.strip()] = value.strip()
    return tuple(_device(name, options[name], line) for name, line in lines.items())


def _device(name: str, options: dict[str, str], line: int) -> ZramDevice:
    kind = options.get("fs-type", "ext2" if options.get("mount-point") else _SWAP)
    return ZramDevice(name, options.get("zram-size"), kind == _SWAP, line)
