"""What to do about each tunable: the profile's values, overlaid by the configuration, against what is in force."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from moetuned.schema.config import Profile, Tuning
from moetuned.schema.tunable import Cell, Codec, PlannedStep, Reading, StepKind, TunableSpec, Wanted

READ_AHEAD_KEY = "tuning.read_ahead"
_INTEGER = re.compile(r"\s*-?\d{1,19}\s*")


def choose(tuning: Tuning, specs: Sequence[TunableSpec]) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """The values `tuning` asks for, in order of name, and every problem of its overlay, one sentence each.

    `tuning.sysctl`, `tuning.thp` and `tuning.read_ahead` win over the profile. A key that no spec has, a value that is out
    of the kernel's range and both files of a pair at once are problems. A key that each device has for itself counts for
    all of them, and is no problem without any.
    """
    wanted: dict[str, Wanted] = {}
    problems: list[str] = []
    for spec in specs:
        seed = spec.wanted.get(tuning.profile.value)
        if seed is not None:
            wanted[spec.name] = Wanted(spec, Cell(spec.place.path, seed), f"profile {tuning.profile.value}")
    overlay: list[tuple[str, int | str]] = [(f"tuning.sysctl.{key}", value) for key, value in tuning.sysctl.items()]
    if tuning.thp is not None:
        overlay.append(("tuning.thp", tuning.thp))
    by_key: dict[str, list[tuple[TunableSpec, str]]] = {READ_AHEAD_KEY: []}
    for spec in specs:
        for key, path in _keys(spec):
            by_key.setdefault(key, []).append((spec, path))
    if tuning.read_ahead is not None:
        overlay.append((READ_AHEAD_KEY, tuning.read_ahead))
    overlaid: dict[str, str] = {}
    for key, value in overlay:
        if key not in by_key:
            problems.append(
                f"{key}: moetuned does not know this setting; `moetunectl tune explain` lists those it knows"
            )
            continue
        for spec, path in by_key[key]:
            if spec.name in overlaid:
                problems.append(f"{key}: {overlaid[spec.name]} sets the same limit; keep one of the two")
                break
            overlaid[spec.name] = key
            text, problem = _checked(spec, path, value)
            if problem is not None:
                problems.append(f"{key}: {value!r} {problem}")
                break
            wanted[spec.name] = Wanted(spec, Cell(path, text), key)
    return tuple(wanted[name] for name in sorted(wanted)), tuple(problems)


def _keys(spec: TunableSpec) -> list[tuple[str, str]]:
    keys = [(spec.config_key, spec.place.path)]
    if spec.twin is not None and spec.place.twin_path is not None:
        keys.append((f"tuning.sysctl.{spec.twin.name}", spec.place.twin_path))
    return keys


def _checked(spec: TunableSpec, path: str, value: int | str) -> tuple[str, str | None]:
    """The normalised value, and what is wrong with it."""
    text = str(value)
    if spec.place.codec is Codec.CHOICE:
        return text, None if text in spec.choices else f"is not one of {', '.join(spec.choices)}"
    if _INTEGER.fullmatch(text) is None:
        return text, "is no whole number"
    number = int(text)
    lowest, highest = spec.lowest, spec.highest
    if spec.twin is not None and path == spec.place.twin_path:
        lowest, highest = spec.twin.lowest, 2**63 - 1
    if lowest is not None and number < lowest:
        return text, f"is too small; the kernel takes {lowest} or more"
    if highest is not None and number > highest:
        return text, f"is too large; the kernel takes {highest} or less"
    return str(number), None


def plan(profile: Profile, wanted: Sequence[Wanted], readings: Mapping[str, Reading]) -> tuple[PlannedStep, ...]:
    """One step for each wanted value. `readings` maps a tunable's name to what was read of it just now."""
    return tuple(_step(profile, item, readings[item.spec.name]) for item in wanted)


def _step(profile: Profile, item: Wanted, reading: Reading) -> PlannedStep:
    def skipped(why: str) -> PlannedStep:
        return PlannedStep(item, StepKind.SKIPPED, reading.cell, why)

    if profile is Profile.OBSERVE:
        return skipped(f"profile observe changes nothing; {item.asked_by} needs another tuning.profile")
    if reading.cell is None:
        return skipped(reading.unknown or f"{item.spec.place.path} could not be read")
    if reading.cell == item.cell:
        return PlannedStep(item, StepKind.ALREADY, reading.cell, item.asked_by)
    if reading.read_only:
        return skipped(f"{item.cell.path} is read-only here (a container?)")
    if item.spec.place.codec is Codec.CHOICE and item.cell.value not in reading.choices:
        return skipped(f"this kernel offers only {', '.join(reading.choices)} in {item.cell.path}")
    return PlannedStep(item, StepKind.WRITE, reading.cell, item.asked_by)
