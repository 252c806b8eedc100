"""Machines as case files: what one tick reads of each, as its kernel prints it, and what has to come of it.

A file in machines/ is one machine. docs/adding.md says how to add one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from moetuned.parse.assemble import backend_paths, machine_paths
from moetuned.schema.sample import BackendIdentity, RawSample

DIRECTORY = Path(__file__).parent / "machines"
FILES = sorted(DIRECTORY.glob("*.yaml"))


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where its memory is counted, as `host.cgroup.memory_cgroup` says; `unknown` is a part of the reason."""

    directory: str | None = None
    version: int | None = None
    seen_root: str | None = None
    limited_above: tuple[str, ...] = ()
    unknown: str | None = None


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of the sample by group. Every field that is not named must be None, and so must every group."""

    meminfo: dict[str, int] | None = None
    vmstat: dict[str, int] | None = None
    pressure_memory: dict[str, int] | None = None
    pressure_io: dict[str, int] | None = None
    disks: dict[str, dict[str, int]] = {}
    process: dict[str, int | str] | None = None
    cgroup: dict[str, Any] | None = None
    above: dict[str, dict[str, int]] = {}


class MachineCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`source`: where the texts are from, and which of them are composed. `files`: a path that is missing cannot be read there.

    `later`: what is different a second later, by path: the number of each line by the line's first word, or the whole text.
    `expect`: of the first second. `signals`: values in the second one (of those of a rate: over that second). `unknown`: signals
    that must have none there. `limit_of`: a part of what `memory_view` calls the limit.
    """

    about: str
    kernel: str
    source: str
    files: dict[str, str]
    expect: Expected
    place: Place
    later: dict[str, str | dict[str, int]] = {}
    pid: int = 812
    disks: tuple[str, ...] = ()
    page_bytes: int = 4096
    signals: dict[str, float] = {}
    unknown: tuple[str, ...] = ()
    memory: str = "unknown"
    limit_of: str | None = None


def load(path: Path) -> MachineCase:
    """Raises ValidationError for a case of another shape."""
    return msgspec.convert(yaml.safe_load(path.read_text()), MachineCase)


def identity(case: MachineCase) -> BackendIdentity:
    """The backend of a case, with the cgroup whose files are read for it."""
    return BackendIdentity(
        name="backend",
        pid=case.pid,
        cgroup_directory=case.place.directory or case.place.seen_root,
        cgroup_version=case.place.version,
        disks=case.disks,
        page_bytes=case.page_bytes,
        limited_above=case.place.limited_above,
    )


def text_later(case: MachineCase, path: str) -> str | None:
    """What the file says a second later."""
    text, change = case.files.get(path), case.later.get(path)
    if change is None or isinstance(change, str):
        return text if change is None else change
    assert text is not None
    for word, number in change.items():
        lines = text.splitlines(keepends=True)
        places = [at for at, line in enumerate(lines) if line.split()[0].rstrip(":") == word]
        assert len(places) == 1, f"{path} has {len(places)} lines of {word}"
        first, *rest = lines[places[0]].split()
        lines[places[0]] = " ".join([first, str(number), *rest[1:]]) + "\n"
        text = "".join(lines)
    return text


def moments(case: MachineCase) -> list[RawSample]:
    """What a tick reads at two moments a second apart."""
    paths = (*machine_paths(), *backend_paths(identity(case)))
    return [
        RawSample(1000.0, 1.7e9, {path: case.files.get(path) for path in paths}),
        RawSample(1001.0, 1.7e9 + 1, {path: text_later(case, path) for path in paths}),
    ]
