"""A kernel setting that moetuned may change: where it is, how its text reads, what it should be. Data only."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Codec(StrEnum):
    """How the text of a setting's file is read: a whole number, or `always [madvise] never` with the choice in brackets."""

    INTEGER = "integer"
    CHOICE = "choice"


class Twin(msgspec.Struct, frozen=True):
    """The second name of a pair of which one is in force: writing either sets the other to 0 (vm.dirty_ratio, _bytes).

    `lowest` is the smallest value the kernel takes; the twin is in force while it is not 0.
    """

    name: str
    lowest: int = 1


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a setting is read and written: enough to put a value back without knowing which tunable it was.

    `twin_path`: the other file of a pair (see `Twin`). `taken_at_open`: the kernel copies the value when a file is opened,
    so a change does not reach files that are open already.
    """

    path: str
    codec: Codec
    twin_path: str | None = None
    taken_at_open: bool = False


class Cell(msgspec.Struct, frozen=True):
    """A value in force: the file that holds it and its normalised text (`10`, `never`)."""

    path: str
    value: str


class Reading(msgspec.Struct, frozen=True):
    """What was read of a setting. `cell` None: unknown, and `unknown` says why in one sentence."""

    cell: Cell | None
    choices: tuple[str, ...] = ()
    unknown: str | None = None
    read_only: bool = False


class TunableSpec(msgspec.Struct, frozen=True):
    """One tunable. `wanted` maps a profile's name to the value it wants; a profile that is absent leaves it alone.

    `config_key` is what an administrator writes to choose another value. `lowest` and `highest` are the kernel's own
    limits of an integer, None where it has none; above `useful_highest` a value is allowed but surely a mistake.

    `per_device`: there is one setting for each device under a configured model; the file's own SPEC only describes them, with
    a `*` in its path, and `instances` beside it finds them. `unknown`: why it is not known where this one is, None when it is.
    """

    name: str
    config_key: str
    place: Place
    wanted: dict[str, str]
    lowest: int | None = None
    highest: int | None = None
    choices: tuple[str, ...] = ()
    twin: Twin | None = None
    per_device: bool = False
    unknown: str | None = None
    useful_highest: int | None = None


class Manual(msgspec.Struct, frozen=True):
    """A tunable's manual entry, from its module's docstring: one sentence or paragraph each; `side_effect` is empty for most."""

    summary: str
    why: str
    source: str
    not_when: str
    side_effect: str = ""


class Tunable(msgspec.Struct, frozen=True):
    """A tunable as it is found: what it is and what a person should know."""

    spec: TunableSpec
    manual: Manual


class Wanted(msgspec.Struct, frozen=True):
    """A value somebody asked for. `asked_by`: "profile moe-offload" or the key of the configuration."""

    spec: TunableSpec
    cell: Cell
    asked_by: str


class StepKind(StrEnum):
    """What applying a plan does about one tunable."""

    WRITE = "write"
    ALREADY = "already"
    SKIPPED = "skipped"


class PlannedStep(msgspec.Struct, frozen=True):
    """One tunable of a plan: `now` None is unknown; `reason` says why it is skipped, else who asked for the value."""

    wanted: Wanted
    kind: StepKind
    now: Cell | None
    reason: str
