"""Windows of samples from short YAML: what a moment leaves out is unknown, but a process of pid 1 runs in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from moetuned.decide.facts import BackendFacts
from moetuned.schema.sample import Sample

LAYOUT = {
    "layers": 10,
    "experts": 8,
    "experts_used": 2,
    "expert_slice_bytes": 1_000_000,
    "expert_bytes": 240_000_000,
    "other_bytes": 60_000_000,
    "active_expert_bytes": 60_000_000,
}


class Case(msgspec.Struct, forbid_unknown_fields=True):
    about: str
    moments: list[dict[str, Any]]
    expect: dict[str, float | None] | float | None
    facts: dict[str, Any] = {}


def cases_of(text: str) -> list[Case]:
    return msgspec.convert(yaml.safe_load(text), list[Case])


def facts_of(given: Mapping[str, Any]) -> BackendFacts:
    known = {"model_bytes": 300_000_000, "layout": LAYOUT, "disks": ("sda",), **given}
    return msgspec.convert(known, BackendFacts)


def sample_of(moment: Mapping[str, Any]) -> Sample:
    given = moment.get("process", {})
    process = None if given is None else {"pid": 1, "start_ticks": 1, **given}
    cgroup = moment.get("cgroup")
    slots = moment.get("slots")
    http = moment.get("http")
    if slots is not None:
        http = {"health": "ok", **(http or {}), "slots": [{"slot_id": n, **slot} for n, slot in enumerate(slots)]}
    backend = {
        "name": "one",
        "process": process,
        "process_gone": process is None,
        "cgroup": None if cgroup is None else {"version": 2, **cgroup},
        "http": http,
        "residency": moment.get("residency"),
        "above": moment.get("above", ()),
    }
    raw = {
        "at_seconds": moment["t"],
        "wall_seconds": moment["t"],
        "machine": moment.get("machine", {}),
        "backends": [backend],
    }
    return msgspec.convert(raw, Sample)
