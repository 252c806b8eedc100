"""Who else sets kernel settings on this machine. Only files are read; nothing is run and nobody is asked."""

from __future__ import annotations

from moetuned.decide.rival_match import rivals_of
from moetuned.host.fs import HostFS
from moetuned.host.rival_commands import from_boot_commands, from_sysfsutils
from moetuned.host.rival_files import from_command_line, from_sysctl_files, from_tmpfiles, from_udev_rules
from moetuned.host.rival_tuners import from_laptop_mode_tools, from_tlp, from_tuned, from_zram_generator
from moetuned.schema.rival import FoundRivals, Rival

__all__ = ["find_rivals", "look_for_rivals", "rivals_of"]


def look_for_rivals(fs: HostFS, machine: str | None = None) -> FoundRivals:
    """Everybody who sets a sysctl, a file under /sys or swap, in the order of the boot, and what could not be read.

    `machine` as in uname ("x86_64"; None: this one), for profiles of tuned. Never raises. Files that `tune persist` wrote and
    nobody edited are no rivals.
    """
    notes: dict[str, None] = {}

    def note(sentence: str) -> None:
        notes[sentence] = None

    rivals = (
        *from_command_line(fs, note),
        *from_sysctl_files(fs, note),
        *from_udev_rules(fs, note),
        *from_tmpfiles(fs, note),
        *from_sysfsutils(fs, note),
        *from_zram_generator(fs, note),
        *from_boot_commands(fs, note),
        *from_tuned(fs, note, machine),
        *from_tlp(fs, note),
        *from_laptop_mode_tools(fs, note),
    )
    return FoundRivals(rivals, tuple(notes))


def find_rivals(fs: HostFS, machine: str | None = None) -> tuple[Rival, ...]:
    """The rivals of `look_for_rivals`."""
    return look_for_rivals(fs, machine).rivals
