"""Who else sets kernel settings on this machine. Only files are read; nothing is run and nobody is asked.

The daemon does this on its loop when a setting drifts. That is fine because nothing here can wait (`RealFS` reads plain files only)
and because what is read is bounded: a usual system has a few hundred files of 1 to 3 MB in all.
"""

from __future__ import annotations

import errno

from moetuned.host.fs import READ_LIMIT_BYTES, HostFS
from moetuned.host.rival_commands import from_boot_commands, from_sysfsutils
from moetuned.host.rival_files import Note, from_command_line, from_sysctl_files, from_tmpfiles, from_udev_rules
from moetuned.host.rival_tuners import from_laptop_mode_tools, from_tlp, from_tuned, from_zram_generator
from moetuned.schema.rival import FoundRivals

MOST_FILES = 1000
MOST_CHARACTERS = 8 << 20


def look_for_rivals(fs: HostFS, machine: str | None = None) -> FoundRivals:
    """Everybody who sets a sysctl, a file under /sys or swap, in the order of the boot, and what could not be read.

    `machine` as in uname ("x86_64"; None: this one), for profiles of tuned. Never raises. Files that `tune persist` wrote and
    nobody edited are no rivals. At most 1000 files and 8 million characters are read; that there were more is one of the notes.
    """
    notes: dict[str, None] = {}

    def note(sentence: str) -> None:
        notes[sentence] = None

    fs = _Bounded(fs, note)
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


class _Bounded:
    """A `HostFS` that reads so much and then no more."""

    def __init__(self, fs: HostFS, note: Note) -> None:
        self._fs, self._note, self._said = fs, note, False
        self._files, self._characters = MOST_FILES, MOST_CHARACTERS
        self.write_text = fs.write_text
        self.exists = fs.exists
        self.list_directory = fs.list_directory
        self.resolve_link = fs.resolve_link

    def read_text(self, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str:
        """See `HostFS.read_text`; as if there were no such file once enough was read."""
        if self._files <= 0 or self._characters <= 0:
            if not self._said:
                self._said = True
                self._note(f"from {path} on no file was looked at: there are too many, or they are too large")
            raise FileNotFoundError(errno.ENOENT, "not looked at", path)
        self._files -= 1
        text = self._fs.read_text(path, limit_bytes)
        self._characters -= len(text)
        return text
