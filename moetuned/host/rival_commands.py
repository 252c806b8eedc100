"""Services and scripts of the administrator's that write kernel settings at boot, and sysfsutils."""

from __future__ import annotations

from collections.abc import Iterator

from moetuned.host.fs import HostFS
from moetuned.host.rival_files import AT_BOOT, Note, names_in, read_config
from moetuned.parse.boot_commands import parse_boot_commands
from moetuned.parse.drop_in_files import reading_order
from moetuned.schema.rival import Rival

_UNITS = ("/etc/systemd/system", "/usr/local/lib/systemd/system")
_SCRIPTS = ("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/init.d/boot.local")
_SYSFSUTILS = "/usr/bin/systool"
_SYSFS_CONF = "/etc/sysfs.conf"
_MOST_UNITS = 300


def from_boot_commands(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What the administrator's own services and rc.local write at start, where it can be read off their commands."""
    units = reading_order([(top, names_in(fs, top, note)) for top in _UNITS], ".service")
    for path in (*units[:_MOST_UNITS], *_SCRIPTS):
        when = "when the service starts" if path.endswith(".service") else AT_BOOT
        for command in parse_boot_commands(read_config(fs, path, note) or ""):
            yield Rival(f"{path} line {command.line}", command.path, command.value, when, file=path)


def from_sysfsutils(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What sysfsutils writes below /sys at boot: lines `kernel/mm/… = value` of /etc/sysfs.conf and /etc/sysfs.d."""
    if not fs.exists(_SYSFSUTILS):
        return
    drop_ins = reading_order([("/etc/sysfs.d", names_in(fs, "/etc/sysfs.d", note))], ".conf")
    for path in (_SYSFS_CONF, *drop_ins):
        for number, line in enumerate((read_config(fs, path, note) or "").split("\n"), 1):
            attribute, equals, value = line.partition("#")[0].partition("=")
            words = attribute.split()
            if equals and len(words) == 1 and value.strip():
                yield Rival(f"{path} line {number}", f"/sys/{words[0].lstrip('/')}", value.strip(), AT_BOOT, file=path)
