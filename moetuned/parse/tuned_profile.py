"""Profiles of tuned (tuned.conf(5), tuned-profiles(7)): which kernel files a profile sets, over all that it includes.

Follows tuned's own loader and merger (tuned/profiles/loader.py, merger.py, unit.py), and of its plug-ins sysctl, vm, disk and sysfs.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from moetuned.schema.tunable import Bound

_THP = "/sys/kernel/mm/transparent_hugepage"
_VM = {
    "transparent_hugepages": f"{_THP}/enabled",
    "transparent_hugepage": f"{_THP}/enabled",
    "transparent_hugepage.defrag": f"{_THP}/defrag",
    **{name: f"/proc/sys/vm/{name}" for name in ("dirty_bytes", "dirty_ratio")},
    **{name: f"/proc/sys/vm/{name}" for name in ("dirty_background_bytes", "dirty_background_ratio")},
}
_DISK = {"readahead": "read_ahead_kb", "readahead_multiply": "read_ahead_kb", "elevator": "scheduler"}
_LONGEST = 4096
_TRUE = frozenset({"true", "True", "1"})
_BOUNDS = {">": Bound.AT_LEAST, "<": Bound.AT_MOST}
_LIST = re.compile(r"\s*[,;]\s*")
_DEVICES = re.compile(r"[\s,;]+")
_SECTORS = re.compile(r"(\d{1,12})\s+s\w*")
_PLAIN_WORD = re.compile(r"\w+")


class Unit(msgspec.Struct, frozen=True):
    """One section. `devices` is empty for all; `uname_regex` and `only` (a condition, as written) limit where it counts."""

    kind: str
    options: dict[str, str]
    enabled: bool = True
    replace: bool = False
    drop: tuple[str, ...] = ()
    devices: str | None = None
    uname_regex: str | None = None
    only: str | None = None


class Profile(msgspec.Struct, frozen=True):
    """One file: the names of the profiles it includes, first, and its sections by name."""

    includes: tuple[str, ...] = ()
    units: dict[str, Unit] = {}


class TunedSetting(msgspec.Struct, frozen=True):
    """What a profile writes, by which plug-in (`sysctl`, `vm`, `disk`, `sysfs`).

    `path` may hold `*` for all devices; `value` None: a variable, a factor or not understood.
    """

    path: str
    value: str | None
    bound: Bound = Bound.SET
    only: str | None = None
    plugin: str = "sysctl"


def parse_tuned_profile(text: str) -> Profile:
    """One tuned.conf. Raises ValueError with the reason where tuned would refuse it as well, or a line or value is endless."""
    if any(len(line) > _LONGEST for line in text.splitlines()):
        raise ValueError(f"a line of more than {_LONGEST} characters")
    parser = configparser.ConfigParser(
        delimiters=("=",), inline_comment_prefixes=("#",), strict=False, interpolation=None
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # documented way to keep the case of names
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError, AttributeError) as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None
    sections = {name: dict(parser.items(name)) for name in parser.sections()}
    if any(len(value) > _LONGEST for options in sections.values() for value in options.values()):
        raise ValueError(f"a value of more than {_LONGEST} characters")
    include = sections.pop("main", {}).get("include", "")
    return Profile(
        includes=tuple(name for name in _LIST.split(include.strip()) if name),
        units={name: _unit(name, options) for name, options in sections.items()},
    )


def merged(profiles: Sequence[Profile]) -> Profile:
    """The profile that is in force: each profile after those it includes; later options win over earlier ones."""
    units: dict[str, Unit] = {}
    for profile in profiles:
        for name, unit in profile.units.items():
            before = units.get(name)
            units[name] = unit if before is None or unit.replace else _over(before, unit)
    return Profile(units=units)


def settings(profile: Profile, machine: str) -> tuple[TunedSetting, ...]:
    """What `profile` (merged) writes on a `machine` ("x86_64") of ours: sysctls, /sys files and settings of disks."""
    return tuple(
        setting
        for unit in profile.units.values()
        if unit.enabled and not _other_machine(unit, machine)
        for setting in _settings(unit)
    )


def _unit(name: str, options: Mapping[str, str]) -> Unit:
    rest = dict(options)
    drop = rest.pop("drop", "")
    uname, cpu = rest.pop("uname_regex", None), rest.pop("cpuinfo_regex", None)
    udev = rest.pop("devices_udev_regex", None)
    conditions = {"uname_regex": uname, "cpuinfo_regex": cpu, "devices_udev_regex": udev}
    only = ", ".join(f"{key}={value}" for key, value in conditions.items() if value is not None)
    return Unit(
        kind=rest.pop("type", name),
        enabled=rest.pop("enabled", "true") in _TRUE,
        replace=rest.pop("replace", "false") in _TRUE,
        drop=tuple(each for each in _LIST.split(drop.strip()) if each),
        devices=rest.pop("devices", None),
        uname_regex=uname,
        only=only or None,
        options=rest,
    )


def _over(before: Unit, unit: Unit) -> Unit:
    options = {name: value for name, value in before.options.items() if name not in unit.drop}
    return msgspec.structs.replace(
        unit,
        options=options | unit.options,
        uname_regex=unit.uname_regex or before.uname_regex,
        only=unit.only or before.only,
    )


def _other_machine(unit: Unit, machine: str) -> bool:
    """Only a plain word is judged here; an expression of somebody else's file is not run."""
    word = unit.uname_regex
    return word is not None and _PLAIN_WORD.fullmatch(word) is not None and word not in machine


def _settings(unit: Unit) -> Iterator[TunedSetting]:
    for option, text in unit.options.items():
        value, bound = _value(text)
        if unit.kind == "sysctl":
            yield TunedSetting("/proc/sys/" + option.replace(".", "/"), value, bound, unit.only)
        elif unit.kind == "sysfs" and option.startswith("/"):
            yield TunedSetting(option, value, bound, unit.only, unit.kind)
        elif unit.kind == "vm" and option in _VM:
            yield _of_memory(option, value, bound, unit.only)
        elif unit.kind == "disk" and option in _DISK:
            yield from _of_disks(unit, option, value, bound)


def _value(text: str) -> tuple[str | None, Bound]:
    """`>4096` of tuned raises and `<10` lowers what stands there; a value with a variable or function in it is unknown."""
    value = text.strip()
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    bound = _BOUNDS.get(value[:1], Bound.SET) if len(value) > 1 else Bound.SET
    if bound is not Bound.SET:
        value = value[1:].strip()
    return (None if "${" in value or not value else value), bound


def _of_memory(option: str, value: str | None, bound: Bound, only: str | None) -> TunedSetting:
    if value is not None and value.endswith("%") and option.endswith("_bytes"):
        return TunedSetting(_VM[option.replace("_bytes", "_ratio")], value[:-1].strip(), bound, only, "vm")
    return TunedSetting(_VM[option], value, bound, only, "vm")


def _of_disks(unit: Unit, option: str, value: str | None, bound: Bound) -> Iterator[TunedSetting]:
    if option == "readahead" and value is not None and (sectors := _SECTORS.fullmatch(value)):
        value = str(int(sectors[1]) // 2)
    elif option == "readahead_multiply":
        value = None
    names = [name for name in _DEVICES.split(unit.devices or "*") if name]
    chosen = [name for name in names if not name.startswith("!")] or ["*"]
    left_out = ", ".join(name for name in names if name.startswith("!"))
    for name in chosen:
        device = name if "$" not in name else "*"
        only = f"devices={unit.devices}" if left_out or device != name else unit.only
        yield TunedSetting(f"/sys/block/{device}/queue/{_DISK[option]}", value, bound, only, unit.kind)
