"""Programs that tune the machine: tuned, TLP, laptop-mode-tools, zram-generator. What they set is read from their files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from moetuned.decide.rival_match import SWAPS
from moetuned.host.fs import HostFS
from moetuned.host.rival_files import AT_BOOT, Note, names_in, read_config
from moetuned.parse.drop_in_files import reading_order
from moetuned.parse.plain_assignments import parse_assignments
from moetuned.parse.tuned_profile import Profile, merged, parse_tuned_profile, settings
from moetuned.parse.zram_generator_conf import parse_zram_generator
from moetuned.schema.rival import Rival

_TUNED_PROFILES = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
_TUNED_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_MOST_PROFILES = 50
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"
_SECONDS = re.compile(r"[0-9]{1,9}")
_DISK = re.compile(r"[A-Za-z0-9!:._-]+")
_TLP_DEFAULTS = "/usr/share/tlp/defaults.conf"
_LAPTOP_MODE = ("/usr/sbin/laptop_mode", "/sbin/laptop_mode")
_LAPTOP_MODE_CONF = "/etc/laptop-mode/laptop-mode.conf"
_ON_POWER_CHANGE = "at boot and when the power supply changes"
_ZRAM = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")


def from_tuned(fs: HostFS, note: Note, machine: str | None = None) -> Iterator[Rival]:
    """What tuned's active profile sets, if it has one.

    Its sysctls give way to the files in /etc/sysctl.d and /run/sysctl.d, which tuned applies once more behind its own
    (`reapply_sysctl` in tuned-main.conf), its choice of huge pages to the kernel command line (plugin_vm.py).
    """
    active = (read_config(fs, "/etc/tuned/active_profile", note) or "").split()
    if not active:
        return
    loaded: list[tuple[str, Profile]] = []
    _load(fs, active, loaded, note)
    mode = (read_config(fs, "/etc/tuned/profile_mode", note) or "").strip()
    chosen = " (chosen by itself)" if mode == "auto" else ""
    what = f"tuned, profile {' '.join(active)}{chosen}"
    machine = os.uname().machine if machine is None else machine
    reapplied = _reapplies_sysctl(fs, note)
    thp_decided = "transparent_hugepage=" in (read_config(fs, "/proc/cmdline", note) or "")
    for setting in settings(merged([profile for _, profile in loaded]), machine):
        if thp_decided and setting.plugin == "vm" and setting.path == _THP:
            continue
        yield Rival(
            what,
            setting.path,
            setting.value,
            "at boot and whenever a profile is chosen",
            file=loaded[-1][0],
            bound=setting.bound,
            only=setting.only,
            gives_way=reapplied and setting.plugin == "sysctl",
        )


def _reapplies_sysctl(fs: HostFS, note: Note) -> bool:
    """Whether tuned lets the files of /etc/sysctl.d win over its profile (yes, unless tuned-main.conf says otherwise)."""
    text = read_config(fs, "/etc/tuned/tuned-main.conf", note) or ""
    said = re.findall(r"(?m)^[ \t]*reapply_sysctl[ \t]*=[ \t]*(\w+)", text)
    return not said or said[-1].lower() in ("1", "yes", "true", "on")


def _load(fs: HostFS, names: list[str], loaded: list[tuple[str, Profile]], note: Note) -> None:
    """Append the profiles `names`, each after those it includes and once, as tuned does."""
    seen: set[str] = set()

    def load(name: str) -> None:
        optional, name = name.startswith("-"), name.removeprefix("-")
        if _TUNED_NAME.fullmatch(name) is None or name in (".", ".."):
            note(f"tuned: the profile {name!r} is only known when tuned runs, so what it sets is not known here")
            return
        if len(seen) >= _MOST_PROFILES:
            return
        for directory in _TUNED_PROFILES:
            path = f"{directory}/{name}/tuned.conf"
            if path in seen:
                continue  # a profile may include its namesake in another directory
            text = read_config(fs, path, note)
            if text is None:
                continue
            seen.add(path)
            try:
                profile = parse_tuned_profile(text)
            except ValueError as error:
                note(f"{path}: {error}")
                return
            for included in profile.includes:
                load(included)
            loaded.append((path, profile))
            return
        if not optional and not any(path.endswith(f"/{name}/tuned.conf") for path in seen):
            note(f"tuned: its profile {name} is in none of {', '.join(_TUNED_PROFILES)}")

    for name in names:
        load(name)


def from_tlp(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What TLP sets of the kernel's memory and disk settings: laptop_mode, the write-back times and I/O schedulers.

    (func.d/15-tlp-func-disk of TLP 1.5: set_laptopmode, set_dirty_parms, set_disk_iosched; tlp-readconfs: order of the files.)
    """
    defaults = read_config(fs, _TLP_DEFAULTS, note)
    if defaults is None:
        return
    values = parse_assignments(defaults)
    drop_ins = reading_order([("/etc/tlp.d", names_in(fs, "/etc/tlp.d", note))], ".conf")
    for path in (*drop_ins, "/etc/tlp.conf"):
        values = parse_assignments(read_config(fs, path, note) or "", values)
    if values.get("TLP_ENABLE") != "1":
        return
    for power, words in (("AC", "on mains"), ("BAT", "on battery")):
        what, when = f"TLP {words}", _ON_POWER_CHANGE
        idle, lost = values.get(f"DISK_IDLE_SECS_ON_{power}", ""), values.get(f"MAX_LOST_WORK_SECS_ON_{power}", "")
        if _SECONDS.fullmatch(idle):
            yield Rival(what, "/proc/sys/vm/laptop_mode", idle, when, file="/etc/tlp.conf")
        if _SECONDS.fullmatch(lost) and int(lost) > 0:
            for name in ("dirty_writeback_centisecs", "dirty_expire_centisecs"):
                yield Rival(what, f"/proc/sys/vm/{name}", str(int(lost) * 100), when, file="/etc/tlp.conf")
    schedulers = values.get("DISK_IOSCHED", "").split()
    for device, scheduler in zip(values.get("DISK_DEVICES", "").split(), schedulers, strict=False):
        disk = _disk_name(fs, device)
        if scheduler not in ("keep", "_") and disk is not None:
            path = f"/sys/block/{disk}/queue/scheduler"
            yield Rival("TLP, DISK_IOSCHED", path, scheduler, _ON_POWER_CHANGE, file="/etc/tlp.conf")


def _disk_name(fs: HostFS, device: str) -> str | None:
    """TLP names disks as in /dev, or by what stands in /dev/disk/by-id (which is `ata-…`)."""
    if _DISK.fullmatch(device) is None:
        return None
    if fs.exists(f"/sys/block/{device}"):
        return device
    try:
        return fs.resolve_link(f"/dev/disk/by-id/{device}").rpartition("/")[2]
    except OSError:
        return None


def from_laptop_mode_tools(fs: HostFS, note: Note) -> Iterator[Rival]:
    """What laptop-mode-tools sets (its modules/laptop-mode): the dirty ratios and times, and the read-ahead of its disks."""
    if not any(fs.exists(path) for path in _LAPTOP_MODE):
        return
    text = read_config(fs, _LAPTOP_MODE_CONF, note)
    if text is None:
        return
    values = parse_assignments(text)
    if values.get("ENABLE_LAPTOP_MODE_TOOLS", "1") != "1":
        return
    for power, words, default in (("AC", "on mains", "0"), ("BATTERY", "on battery", "1")):
        saving = values.get(f"ENABLE_LAPTOP_MODE_ON_{power}", default) == "1"
        prefix, what = "LM" if saving else "NOLM", f"laptop-mode-tools {words}"
        for name in ("dirty_ratio", "dirty_background_ratio"):
            yield Rival(
                what,
                f"/proc/sys/vm/{name}",
                values.get(f"{prefix}_{name.upper()}"),
                _ON_POWER_CHANGE,
                file=_LAPTOP_MODE_CONF,
            )
        for name in ("dirty_writeback_centisecs", "dirty_expire_centisecs"):
            yield Rival(what, f"/proc/sys/vm/{name}", None, _ON_POWER_CHANGE, file=_LAPTOP_MODE_CONF)
        laptop_mode = values.get("LM_SECONDS_BEFORE_SYNC") if saving else "0"
        yield Rival(what, "/proc/sys/vm/laptop_mode", laptop_mode, _ON_POWER_CHANGE, file=_LAPTOP_MODE_CONF)
        if values.get("CONTROL_READAHEAD", "0") != "0":
            read_ahead = values.get(f"{prefix}_READAHEAD")
            for disk in (*_laptop_mode_disks(values), "dm-*"):
                path = f"/sys/block/{disk}/queue/read_ahead_kb"
                yield Rival(what, path, read_ahead, _ON_POWER_CHANGE, file=_LAPTOP_MODE_CONF)


def _laptop_mode_disks(values: dict[str, str]) -> list[str]:
    return [disk.removeprefix("/dev/") for disk in values.get("HD", "").split() if disk.startswith("/dev/")]


def from_zram_generator(fs: HostFS, note: Note) -> Iterator[Rival]:
    """The swap devices in compressed memory that systemd makes at boot; their `path` is the list of swaps."""
    if not any(fs.exists(f"{top}/system-generators/zram-generator") for top in (*_ZRAM, "/lib/systemd")):
        return
    mains = [path for top in _ZRAM if fs.exists(path := f"{top}/zram-generator.conf")][:1]
    folders = [f"{top}/zram-generator.conf.d" for top in _ZRAM]
    drop_ins = reading_order([(folder, names_in(fs, folder, note)) for folder in folders], ".conf")
    found: dict[str, Rival] = {}
    for path in (*mains, *drop_ins):
        for device in parse_zram_generator(read_config(fs, path, note) or ""):
            what = f"zram-generator, {path} line {device.line}"
            if device.is_swap:
                found[device.name] = Rival(what, SWAPS, f"/dev/{device.name}", AT_BOOT, file=path)
    yield from found.values()
