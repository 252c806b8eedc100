"""Settings of a plan as files that set them at boot: sysctl.d(5), tmpfiles.d(5) and a udev rule (udev(7))."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from moetuned.decide.rival_match import describe_rival, disagrees, rivals_of
from moetuned.parse.persisted_file import Standing, standing, with_header
from moetuned.schema.persisted import DeviceMatch, FileChange, FileStep, LeftOut, PersistPlan
from moetuned.schema.rival import Rival
from moetuned.schema.tunable import PlannedStep, StepKind

SYSCTL_FILE = "/etc/sysctl.d/90-moetuned.conf"
TMPFILES_FILE = "/etc/tmpfiles.d/moetuned.conf"
UDEV_FILE = "/etc/udev/rules.d/90-moetuned.rules"
OWN_FILES = (SYSCTL_FILE, TMPFILES_FILE, UDEV_FILE)

READERS = {
    SYSCTL_FILE: (
        "/usr/lib/systemd/systemd-sysctl",
        "/lib/systemd/systemd-sysctl",
        "/usr/sbin/sysctl",
        "/sbin/sysctl",
        "/usr/bin/sysctl",
    ),
    TMPFILES_FILE: ("/usr/bin/systemd-tmpfiles", "/bin/systemd-tmpfiles"),
    UDEV_FILE: ("/usr/bin/udevadm", "/bin/udevadm", "/usr/sbin/udevadm", "/sbin/udevadm"),
}
"""The programs of which one must be there for a file of ours to have an effect."""

_PROC_SYS = "/proc/sys/"
_MEMORY = "/sys/kernel/mm/"
_OF_DISK = re.compile(r"/sys/block/([^/]+)/((?:queue|bdi)/(?:read_ahead_kb|scheduler|nr_requests))")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./-]+")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_+-]+")
_COMMAND_LINE = "/proc/cmdline"
_SYSCTL_CONF = "/etc/sysctl.conf"
# A new scheduler sets nr_requests anew (blk_mq_init_sched), so it comes first.
_ORDER = ("scheduler", "nr_requests", "read_ahead_kb")


class _Entry(msgspec.Struct, frozen=True):
    """One setting to keep. `pair` are both files of a pair, or the one file; `unit` and `unit_property` as in `Place`."""

    name: str
    path: str
    value: str
    pair: tuple[str, ...]
    unit: str | None = None
    unit_property: str | None = None


def disks_of(steps: Iterable[PlannedStep]) -> tuple[str, ...]:
    """Names (in /sys/block) of the disks that the plan's settings are of."""
    found = (_OF_DISK.fullmatch(entry.path) for entry in _entries(steps)[0])
    return tuple(dict.fromkeys(match[1] for match in found if match is not None))


def plan_persist(
    steps: Sequence[PlannedStep],
    disks: Mapping[str, DeviceMatch | str],
    own_files: Mapping[str, str | None],
    rivals: Iterable[Rival] = (),
    unread: Collection[str] = (),
    unkept: Mapping[str, str] | None = None,
) -> PersistPlan:
    """What to write so that the plan's settings are there after a reboot.

    `disks` maps a disk's name to how a rule finds it, or to why none can. `own_files` maps each of `OWN_FILES` to its text, None
    where there is none, `unread` are those of them that no program here reads (`READERS`). A setting within its bound keeps the value that stands. A file of ours that nothing is in any more
    is removed, and one that is not as we wrote it is refused; then nothing at all should be done. `unkept` maps settings that a
    file could keep, and shall not, to the reason, and so it does things that are no settings.
    """
    apart = unkept or {}
    entries, left_out = _entries(step for step in steps if step.wanted.spec.name not in apart)
    left_out += [LeftOut(name, reason) for name, reason in apart.items()]
    kept: dict[str, list[tuple[_Entry, str]]] = {path: [] for path in OWN_FILES}
    for entry in entries:
        where, line = _line(entry, disks)
        if where is None:
            left_out.append(LeftOut(entry.name, line))
        else:
            kept[where].append((entry, line))
    bodies = {path: _body(path, found, disks) for path, found in kept.items() if found}
    if not bodies:
        return PersistPlan(left_out=tuple(left_out))
    changes = tuple(_change(path, own_files.get(path), bodies.get(path)) for path in OWN_FILES)
    everybody = tuple(rivals)
    warnings = [
        warning for path, found in kept.items() for entry, _ in found for warning in _overruled(entry, path, everybody)
    ]
    for path in unread:
        if path in bodies:
            programs = ", ".join(READERS[path])
            warnings.append(f"{path} has no effect, as nothing here reads it at boot: there is none of {programs}")
    return PersistPlan(
        tuple(change for change in changes if change is not None), tuple(left_out), tuple(dict.fromkeys(warnings))
    )


def plan_unpersist(own_files: Mapping[str, str | None]) -> PersistPlan:
    """Take away every file of ours; one that is not as we wrote it is refused, then nothing should be done."""
    changes = (_change(path, own_files.get(path), None) for path in OWN_FILES)
    return PersistPlan(tuple(change for change in changes if change is not None))


def preview(change: FileChange) -> str:
    """The change as a unified diff, whole lines; empty when there is none."""
    if change.before == change.after:
        return ""
    lines = difflib.unified_diff(
        (change.before or "").splitlines(),
        (change.after or "").splitlines(),
        "/dev/null" if change.before is None else change.path,
        "/dev/null" if change.after is None else change.path,
        lineterm="",
    )
    return "\n".join(lines)


def _entries(steps: Iterable[PlannedStep]) -> tuple[list[_Entry], list[LeftOut]]:
    entries: list[_Entry] = []
    left_out: list[LeftOut] = []
    for step in steps:
        spec = step.wanted.spec
        cell = step.now if step.kind is StepKind.ALREADY and step.now is not None else step.wanted.cell
        pair = tuple(path for path in (spec.place.path, spec.place.twin_path) if path is not None)
        if step.kind is StepKind.SKIPPED:
            left_out.append(LeftOut(spec.name, step.reason))
        elif _PLAIN_PATH.fullmatch(cell.path) is None or _PLAIN_VALUE.fullmatch(cell.value) is None:
            left_out.append(LeftOut(spec.name, f"{cell.path} = {cell.value} cannot be written in such a file"))
        else:
            place = spec.place
            entries.append(_Entry(spec.name, cell.path, cell.value, pair, place.unit, place.unit_property))
    return entries, left_out


def _line(entry: _Entry, disks: Mapping[str, DeviceMatch | str]) -> tuple[str | None, str]:
    """The file of ours that keeps a setting and its line there; None and the reason where none can."""
    if entry.path.startswith(_PROC_SYS):
        key = entry.path.removeprefix(_PROC_SYS)
        return SYSCTL_FILE, f"{key if '.' in key else key.replace('/', '.')} = {entry.value}"
    if entry.path.startswith(_MEMORY):
        # `!`: at boot only, not whenever a package is installed.
        return TMPFILES_FILE, f"w! {entry.path} - - - - {entry.value}"
    disk = _OF_DISK.fullmatch(entry.path)
    if disk is not None:
        match = disks.get(disk[1], f"it is not known how to find {disk[1]} again after a reboot")
        if isinstance(match, str):
            return None, match
        rule = f'ACTION=="add|change", SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", {match.rule}'
        return UDEV_FILE, f'{rule}, ATTR{{{disk[2]}}}="{entry.value}"'
    if entry.path.startswith("/sys/class/bdi/"):
        return None, (
            "it belongs to a file system (btrfs), not to a disk, and its name is given anew at each mount, so no rule can "
            "name it; the daemon sets it at each start"
        )
    if entry.unit is not None and entry.unit_property is not None:
        return None, (
            f"it belongs to {entry.unit}, which can keep it itself: "
            f"systemctl set-property {entry.unit} {entry.unit_property}={entry.value}"
        )
    return None, "it belongs to something that is there only while it runs; the daemon sets it each time"


def _body(path: str, found: Sequence[tuple[_Entry, str]], disks: Mapping[str, DeviceMatch | str]) -> str:
    if path != UDEV_FILE:
        return "".join(f"{line}\n" for _, line in sorted(found, key=lambda each: each[1]))
    lines: list[str] = []
    before = ""
    for entry, line in sorted(found, key=lambda each: _rank(each[0])):
        disk = entry.path.split("/")[3]
        match = disks[disk]
        if disk != before and isinstance(match, DeviceMatch):
            lines.append(f"# {disk}, by {match.goes_by}")
            before = disk
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _rank(entry: _Entry) -> tuple[str, int]:
    _, _, _, disk, _, attribute = entry.path.split("/")
    return disk, _ORDER.index(attribute)


def _change(path: str, before: str | None, body: str | None) -> FileChange | None:
    """None where there is no file and none is wanted."""
    after = None if body is None else with_header(body)
    if before is None:
        return None if after is None else FileChange(path, FileStep.WRITE, None, after)
    match standing(before):
        case Standing.OURS if before == after:
            return FileChange(path, FileStep.UNCHANGED, before, after)
        case Standing.OURS:
            return FileChange(path, FileStep.REMOVE if after is None else FileStep.WRITE, before, after)
        case Standing.EDITED:
            reason = f"{path} was edited since moetuned wrote it; look at it, remove it by hand if you do not need it, and try again"
        case Standing.FOREIGN:
            reason = f"{path} was not written by moetuned; remove it by hand if you do not need it, and try again"
    return FileChange(path, FileStep.REFUSED, before, before, reason)


def _overruled(entry: _Entry, own_file: str, rivals: tuple[Rival, ...]) -> Iterable[str]:
    """Who writes another value to the same setting after our file has been read."""
    for rival in rivals_of(rivals, (entry.path, *entry.pair)):
        other_of_pair = rival.path in entry.pair and rival.path != entry.path
        if _comes_later(rival, own_file) and (rival.value != "0" if other_of_pair else disagrees(rival, entry.value)):
            yield f"{entry.name}: {own_file} is overruled, {describe_rival(rival)}"


def _comes_later(rival: Rival, own_file: str) -> bool:
    """Whether the rival has the last word over a file of ours; where the order is not known it is said to."""
    file = rival.file or ""
    if file == _COMMAND_LINE or file in OWN_FILES or (rival.gives_way and own_file == SYSCTL_FILE):
        return False
    folder, name = _folder_and_name(file)
    own_folder, own_name = _folder_and_name(own_file)
    if file == _SYSCTL_CONF or folder != own_folder:
        return True
    if own_file == TMPFILES_FILE and "*" not in rival.path:
        # Of two lines for one path the first is taken (tmpfiles.d(5)), unless ours is not looked at: after the boot.
        return name < own_name or "--create" in rival.when
    return name > own_name


def _folder_and_name(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory.rpartition("/")[2], name
