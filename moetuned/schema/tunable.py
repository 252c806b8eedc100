"""A kernel setting that moetuned may change: where it is, how its text reads, what it should be. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from moetuned.schema.config import Limits
from moetuned.schema.swap import SwapStep


class Codec(StrEnum):
    """How the text of a setting's file is read.

    A whole number; `always [madvise] never` with the choice in brackets; a whole number or `max` (memory.low of a cgroup); or
    `default 100`, where lines for single devices may follow (io.weight of a cgroup).
    """

    INTEGER = "integer"
    CHOICE = "choice"
    LIMIT = "limit"
    WEIGHT = "weight"


class Bound(StrEnum):
    """How a wanted value is meant: exactly that, or as the least or the most that may stand there."""

    SET = "set"
    AT_LEAST = "at-least"
    AT_MOST = "at-most"


class Twin(msgspec.Struct, frozen=True):
    """The second name of a pair of which one is in force: writing either sets the other to 0 (vm.dirty_ratio, _bytes).

    `lowest` is the smallest value the kernel takes; the twin is in force while it is not 0.
    """

    name: str
    lowest: int = 1


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a setting is read and written: enough to put a value back without knowing which tunable it was.

    `twin_path`: the other file of a pair (see `Twin`). `taken_at_open`: the kernel copies the value when a file is opened,
    so a change does not reach files that are open already. `unit` and `unit_property`: the file is the service manager's, which
    must be asked to write it (`MemoryLow` of `llama.service`).
    """

    path: str
    codec: Codec
    twin_path: str | None = None
    taken_at_open: bool = False
    unit: str | None = None
    unit_property: str | None = None


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
    """One tunable. `wanted` maps a profile's name to the value it wants (as `bound` says); an absent profile leaves it alone.

    `config_key` is what an administrator writes to choose another value. `lowest` and `highest` are the kernel's own
    limits of an integer, None where it has none (`own_lowest`: the kernel takes less, but that is never meant); above
    `useful_highest` a value is allowed but surely a mistake.

    `keep` maps values that somebody chose with intent to the reason why a profile leaves them alone. `side_effects` are other
    settings that the kernel changes when this one is written; they are put back with it.

    What the values depend on the machine for is filled in by a file's `instances`: `wanted` with `because`, one sentence on where
    they come from; `skip`, why this one is not set here; `asked`, a value that the configuration asks for this one alone.
    `per_device`: there is one setting for each device (or cgroup); the file's own SPEC only describes them, with a `*` in
    its path.
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
    useful_highest: int | None = None
    own_lowest: bool = False
    bound: Bound = Bound.SET
    keep: dict[str, str] = {}
    side_effects: tuple[Place, ...] = ()
    because: str = ""
    skip: str | None = None
    asked: str | None = None


class Manual(msgspec.Struct, frozen=True):
    """A tunable's manual entry, from its module's docstring: one sentence or paragraph each.

    `side_effect`, and `computed`, how a profile's value follows from the machine, are empty for most.
    """

    summary: str
    why: str
    risk: str
    source: str
    not_when: str
    side_effect: str = ""
    computed: str = ""


class Tunable(msgspec.Struct, frozen=True):
    """A tunable as it is found: what it is and what a person should know."""

    spec: TunableSpec
    manual: Manual


class ModelTarget(msgspec.Struct, frozen=True):
    """A model file that a backend of the configuration opens, and the bytes of one expert's slice of one tensor.

    `slice_bytes` None: `unknown` says why (no experts, a header that cannot be read).
    """

    path: str
    slice_bytes: int | None = None
    unknown: str | None = None


class CgroupTarget(msgspec.Struct, frozen=True):
    """The cgroup of a backend, as a directory under /sys/fs/cgroup, and what the configuration asks for it.

    `directory` None: it is not known, most often because the backend does not run, or it has none of its own: `unknown` says why then.
    """

    backend: str
    directory: str | None = None
    memory_low_bytes: int | None = None
    io_weight: int | None = None
    unknown: str | None = None
    memory_min_bytes: int | None = None


class Targets(msgspec.Struct, frozen=True):
    """What settings of a device or a cgroup are found by. `profile`: the one that is planned, None when no one in particular is.

    `swap`: what is planned to be made or left; settings that follow from where swap lives count it as made. `originals`: files that hold a
    value of ours now, and what they held before. `limits`: of the configuration. `short`: why nothing may be kept for good now, whatever is left.
    """

    models: tuple[ModelTarget, ...] = ()
    cgroups: tuple[CgroupTarget, ...] = ()
    profile: str | None = None
    swap: tuple[SwapStep, ...] = ()
    originals: Mapping[str, str] = {}
    limits: Limits = Limits()
    short: str | None = None


class Wanted(msgspec.Struct, frozen=True):
    """A value somebody asked for. `asked_by`: "profile moe-offload" or the key of the configuration."""

    spec: TunableSpec
    cell: Cell
    asked_by: str
    bound: Bound = Bound.SET
    by_profile: bool = False


class StepKind(StrEnum):
    """What applying a plan does about one tunable."""

    WRITE = "write"
    ALREADY = "already"
    SKIPPED = "skipped"


class PlannedStep(msgspec.Struct, frozen=True):
    """One tunable of a plan: `now` None is unknown; `reason` says why it is skipped, else who asked for the value.

    `blocked`: it is skipped only because its file cannot be written from here.
    """

    wanted: Wanted
    kind: StepKind
    now: Cell | None
    reason: str
    blocked: bool = False
