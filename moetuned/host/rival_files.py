"""Files read at boot that set kernel settings: sysctl.d, tmpfiles.d, udev rules, the kernel command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moetuned.host.fs import HostFS
from moetuned.parse import sysctl_conf, tmpfiles_conf
from moetuned.parse.drop_in_files import reading_order
from moetuned.parse.kernel_command_line import decided_settings
from moetuned.parse.persisted_file import Standing, standing
from moetuned.parse.udev_attributes import UdevSetting, parse_udev_rules
from moetuned.schema.rival import Rival

SYSCTL_CONF = "/etc/sysctl.conf"
AT_BOOT = "at boot"
_COMMAND_LINE = "/proc/cmdline"
_SYSCTL_SYSTEM = "when sysctl --system runs, which some systems do at boot"
_DIRECTORIES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_FILE_LIMIT_BYTES = 256 << 10
_MOST_FILES = 500
_MOST_KEYS = 2000

Note = Callable[[str], None]


def read_config(fs: HostFS, path: str, note: Note) -> str | None:
    """Text of a configuration file; None when there is none, or it cannot be read or is too large, which is noted.

    A link to /dev/null, which masks a unit or a file of the same name, is an empty one.
    """
    try:
        text = fs.read_text(path, _FILE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if _target(fs, path) == "/dev/null":
            return ""
        note(f"{path} cannot be read ({error.strerror or error}), so what it sets is not known")
        return None
    if len(text) > _FILE_LIMIT_BYTES:
        note(f"{path} is larger than {_FILE_LIMIT_BYTES >> 10} KiB and was not looked at")
        return None
    return text


def names_in(fs: HostFS, directory: str, note: Note) -> list[str]:
    """Names in a directory; none when there is none or it cannot be read, which is noted."""
    try:
        return fs.list_directory(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        note(f"{directory} cannot be read ({error.strerror or error}), so what its files set is not known")
        return []


def from_command_line(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What the kernel command line sets before anything else runs."""
    text = read_config(fs, _COMMAND_LINE, note) or ""
    for path, decided in decided_settings(text).items():
        yield Rival(f"the kernel command line ({decided.words})", path, decided.value, AT_BOOT, file=_COMMAND_LINE)


def from_sysctl_files(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What is in force after systemd-sysctl has read all its files, and /etc/sysctl.conf where it is not one of them."""
    files = _texts(fs, "sysctl.d", ".conf", note)
    lines = [line for path, text in files for line in sysctl_conf.parse_sysctl_conf(text, path)]
    ours = {path for path, text in files if standing(text) is Standing.OURS}
    for key, line in sysctl_conf.in_force(lines, lambda pattern: _existing_keys(fs, pattern, note)).items():
        if line.file not in ours:
            yield _of_line(key, line, AT_BOOT)
    if _target(fs, SYSCTL_CONF) not in {_target(fs, path) for path, _ in files}:
        own = sysctl_conf.parse_sysctl_conf(read_config(fs, SYSCTL_CONF, note) or "", SYSCTL_CONF)
        for key, line in sysctl_conf.in_force(own, lambda pattern: _existing_keys(fs, pattern, note)).items():
            yield _of_line(key, line, _SYSCTL_SYSTEM)


def from_tmpfiles(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What systemd-tmpfiles writes into files under /proc and /sys."""
    files = _texts(fs, "tmpfiles.d", ".conf", note)
    ours = {path for path, text in files if standing(text) is Standing.OURS}
    lines = [line for path, text in files for line in tmpfiles_conf.parse_tmpfiles(text, path)]
    for line in tmpfiles_conf.in_force(lines):
        if line.file not in ours and line.path.startswith(("/proc/sys/", "/sys/")):
            when = AT_BOOT if line.only_at_boot else f"{AT_BOOT} and when systemd-tmpfiles --create runs"
            yield Rival(f"{line.file} line {line.line}", line.path, line.value, when, file=line.file)


def from_udev_rules(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What udev sets when a device appears or changes."""
    for path, text in _texts(fs, "udev/rules.d", ".rules", note):
        if standing(text) is not Standing.OURS:
            for setting in parse_udev_rules(text, path):
                yield from _of_rule(fs, setting)


def _of_line(key: str, line: sysctl_conf.Assignment, when: str) -> Rival:
    path = sysctl_conf.PROC_SYS + key
    return Rival(f"{line.file} line {line.line}", path, line.value, when, file=line.file)


def _of_rule(fs: HostFS, setting: UdevSetting) -> Iterator[Rival]:
    what = f"udev rule {setting.file} line {setting.line}"
    for path in setting.paths:
        yield Rival(
            what,
            _by_name(fs, path),
            setting.value,
            "when the device appears",
            file=setting.file,
            only=", ".join(setting.conditions) or None,
        )


def _by_name(fs: HostFS, path: str) -> str:
    """The bdi of one disk's number (/sys/class/bdi/8:0) as that disk's; any other path as it is."""
    number = path.removeprefix("/sys/class/bdi/").partition("/")[0]
    if number == path or not number.replace(":", "", 1).isdigit():
        return path
    target = _target(fs, f"/sys/dev/block/{number}")
    return path if target is None else f"/sys/block/{target.rpartition('/')[2]}/bdi/read_ahead_kb"


def _texts(fs: HostFS, folder: str, suffix: str, note: Note) -> tuple[tuple[str, str], ...]:
    """(path, text) of the files of a set of drop-in directories in reading order."""
    listings = [(f"{top}/{folder}", names_in(fs, f"{top}/{folder}", note)) for top in _DIRECTORIES]
    order = reading_order(listings, suffix)
    if len(order) > _MOST_FILES:
        note(f"only the first {_MOST_FILES} of {len(order)} files in {folder} were looked at")
    read = [(path, read_config(fs, path, note)) for path in order[:_MOST_FILES]]
    return tuple((path, text) for path, text in read if text is not None)


def _target(fs: HostFS, path: str) -> str | None:
    try:
        return fs.resolve_link(path)
    except OSError:
        return None


def _existing_keys(fs: HostFS, pattern: str, note: Note) -> list[str]:
    """Sysctls that exist for a glob, directory by directory."""
    keys = [""]
    for part in pattern.split("/"):
        below: list[str] = []
        for key in keys:
            names = [part] if part not in ("..", "") and not set(part) & set("*?[") else []
            if not names and part != "..":
                names = [
                    name
                    for name in names_in(fs, f"{sysctl_conf.PROC_SYS}{key}".rstrip("/"), note)
                    if sysctl_conf.matches(part, name)
                ]
            below += [f"{key}/{name}".lstrip("/") for name in names]
            if len(below) > _MOST_KEYS:
                note(f"sysctl pattern {pattern} stands for too many settings and was not followed")
                return []
        keys = below
    return keys
