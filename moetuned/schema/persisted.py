"""What `tune persist` and `tune unpersist` do to the files that keep settings over a reboot. Data only."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FileStep(StrEnum):
    """What becomes of one file."""

    WRITE = "write"
    UNCHANGED = "unchanged"
    REMOVE = "remove"
    REFUSED = "refused"


class FileChange(msgspec.Struct, frozen=True):
    """One file: its text before and after, None where there is no file. `reason` says why it is refused."""

    path: str
    step: FileStep
    before: str | None
    after: str | None
    reason: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """A setting that cannot be kept by a file, and why."""

    name: str
    reason: str


class DeviceMatch(msgspec.Struct, frozen=True):
    """How a udev rule finds one disk again after a reboot: the matches of the rule, and in words what they go by."""

    rule: str
    goes_by: str


class PersistPlan(msgspec.Struct, frozen=True):
    """All of it. `warnings`: who will set one of the settings to something else all the same."""

    changes: tuple[FileChange, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
