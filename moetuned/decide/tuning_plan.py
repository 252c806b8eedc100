"""What to do about each tunable: the profile's values, overlaid by the configuration, against what is in force."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moetuned.parse.config_values import overlay_of
from moetuned.schema.config import KEEP, Profile, Tuning
from moetuned.schema.tunable import Bound, Cell, Codec, PlannedStep, Reading, StepKind, TunableSpec, Wanted

_LARGEST = 2**63 - 1
_NUMBERS = (Codec.INTEGER, Codec.LIMIT, Codec.WEIGHT)
_INTEGER = re.compile(r"\s*-?\d{1,19}\s*")
_WHOLE = re.compile(r"\s*-?\d{1,200}\s*", re.ASCII)
_BOUNDED = re.compile(r"\s*(at-least|at-most)\s+(\S+)\s*")


def choose(tuning: Tuning, specs: Sequence[TunableSpec]) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """The values `tuning` asks for, in order of name, and every problem of its overlay, one sentence each.

    What the configuration chooses wins over the profile; `keep` takes a setting out. A key that no spec has, a value that is
    out of the kernel's range and both files of a pair at once are problems. A key that each device has for itself counts for all
    of them, and is no problem without any.
    """
    wanted: dict[str, Wanted] = {}
    problems: list[str] = []
    for spec in specs:
        seed = spec.wanted.get(tuning.profile.value)
        if seed is not None:
            asked_by = f"profile {tuning.profile.value}"
            wanted[spec.name] = Wanted(spec, Cell(spec.place.path, seed), asked_by, spec.bound, by_profile=True)
        if spec.asked is not None:
            wanted[spec.name] = Wanted(spec, Cell(spec.place.path, spec.asked), spec.config_key, spec.bound)
    by_key: dict[str, list[tuple[TunableSpec, str]]] = {}
    for spec in specs:
        for key, path in _keys(spec):
            by_key.setdefault(key, []).append((spec, path))
    overlaid: dict[str, str] = {}
    for key, value in overlay_of(tuning):
        if key.startswith("tuning.sysctl.") and key not in by_key:
            problems.append(
                f"{key}: moetuned does not know this setting; `moetunectl tune explain` lists those it knows"
            )
        for spec, path in by_key.get(key, ()):
            if spec.name in overlaid:
                problems.append(f"{key}: {overlaid[spec.name]} sets the same limit; keep one of the two")
                break
            overlaid[spec.name] = key
            if value == KEEP:
                wanted.pop(spec.name, None)
                continue
            bound, text, problem = _checked(spec, path, value)
            if problem is not None:
                problems.append(f"{key}: {value!r} {problem}")
                break
            wanted[spec.name] = Wanted(spec, Cell(path, text), key, bound)
    return tuple(wanted[name] for name in sorted(wanted)), tuple(problems)


def _keys(spec: TunableSpec) -> list[tuple[str, str]]:
    keys = [(spec.config_key, spec.place.path)]
    if spec.twin is not None and spec.place.twin_path is not None:
        keys.append((f"tuning.sysctl.{spec.twin.name}", spec.place.twin_path))
    return keys


def _checked(spec: TunableSpec, path: str, value: int | str) -> tuple[Bound, str, str | None]:
    """How the value is meant, its normalised text, and what is wrong with it."""
    text, bound = str(value), Bound.SET
    if spec.place.codec not in _NUMBERS:
        return bound, text, None if text in spec.choices or not spec.choices else f"is not one of {_or(spec.choices)}"
    bounded = _BOUNDED.fullmatch(text)
    if bounded is not None:
        bound, text = Bound(bounded[1]), bounded[2]
    if _WHOLE.fullmatch(text) is None:
        return bound, text, "is no whole number, nor at-least or at-most one, nor keep"
    number = int(text)
    lowest, highest = spec.lowest, spec.highest
    if spec.twin is not None and path == spec.place.twin_path:
        lowest, highest = spec.twin.lowest, _LARGEST
    if lowest is not None and number < lowest:
        who = "moetuned" if spec.own_lowest and lowest == spec.lowest else "the kernel"
        return bound, text, f"is too small; {who} takes {lowest} or more"
    if number > (_LARGEST if highest is None else highest):
        return bound, text, f"is too large; the kernel takes {_LARGEST if highest is None else highest} or less"
    return bound, str(number), None


def _or(words: Sequence[str]) -> str:
    return ", ".join((*words, KEEP))


def within(bound: Bound, want: Cell, now: Cell) -> bool:
    """Whether the value in force is what is wanted, or within the bound. Of a pair, two limits of different units never are."""
    if now == want or bound is Bound.SET or now.path != want.path:
        return now == want
    if _INTEGER.fullmatch(now.value) is None or _INTEGER.fullmatch(want.value) is None:
        return bound is Bound.AT_LEAST and now.value == "max"
    return int(now.value) >= int(want.value) if bound is Bound.AT_LEAST else int(now.value) <= int(want.value)


def plan(
    profile: Profile,
    wanted: Sequence[Wanted],
    readings: Mapping[str, Reading],
    decided: Mapping[str, str] | None = None,
    originals: Mapping[str, Cell] | None = None,
) -> tuple[PlannedStep, ...]:
    """One step for each wanted value. `readings` maps a tunable's name to what was read of it just now.

    `decided` maps the file of a setting to the words by which the kernel command line decides it: a profile leaves it alone then.
    `originals`: what settings that are ours were before.
    """
    before = originals or {}
    return tuple(
        _step(
            profile,
            item,
            readings[item.spec.name],
            before.get(item.spec.name, readings[item.spec.name].cell),
            decided or {},
        )
        for item in wanted
    )


def without_refused(steps: Iterable[PlannedStep], refused: Mapping[str, str]) -> tuple[PlannedStep, ...]:
    """The steps, those skipped whose file cannot be written from here. `refused` maps files to the reason."""
    return tuple(
        msgspec.structs.replace(step, kind=StepKind.SKIPPED, reason=refused[step.wanted.cell.path], blocked=True)
        if step.kind is StepKind.WRITE and step.wanted.cell.path in refused
        else step
        for step in steps
    )


def _step(
    profile: Profile, item: Wanted, reading: Reading, original: Cell | None, decided: Mapping[str, str]
) -> PlannedStep:
    why_not = _left_alone(profile, item, reading, original, decided)
    if why_not is not None:
        return PlannedStep(item, StepKind.SKIPPED, reading.cell, why_not)
    assert reading.cell is not None
    told = item.spec.because if item.by_profile or item.spec.asked is not None else ""
    reason = f"{item.asked_by}: {told}" if told else item.asked_by
    if within(item.bound, item.cell, reading.cell):
        return PlannedStep(item, StepKind.ALREADY, reading.cell, reason)
    blocked = reading.read_only
    if blocked:
        why_not = f"{item.cell.path} is read-only here (a container?)"
    elif item.spec.place.codec is Codec.CHOICE and item.cell.value not in reading.choices:
        why_not = f"this kernel offers only {', '.join(reading.choices)} in {item.cell.path}"
    if why_not is not None:
        return PlannedStep(item, StepKind.SKIPPED, reading.cell, why_not, blocked)
    return PlannedStep(item, StepKind.WRITE, reading.cell, reason)


def _left_alone(
    profile: Profile, item: Wanted, reading: Reading, original: Cell | None, decided: Mapping[str, str]
) -> str | None:
    """Why the setting is not touched whatever its value; None when it may be."""
    if profile is Profile.OBSERVE:
        return f"profile observe changes nothing; {item.asked_by} needs another tuning.profile"
    if reading.cell is None or original is None:
        return reading.unknown or f"{item.spec.place.path} could not be read"
    if not item.by_profile:
        return None
    if item.spec.skip is not None:
        return item.spec.skip
    if item.spec.place.path in decided:
        return f"the kernel command line decides it ({decided[item.spec.place.path]})"
    if original.value in item.spec.keep:
        return f"{item.spec.keep[original.value]}; {item.spec.config_key} in the config sets it all the same"
    if item.spec.twin is not None and original.path == item.spec.place.twin_path:
        return f"{item.spec.twin.name} is {original.value}: somebody chose this limit in bytes"
    return None
