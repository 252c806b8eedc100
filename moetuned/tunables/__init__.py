"""Kernel settings moetuned may change, one file each, found by name; a file's docstring is its manual entry.

A file `vm_dirty_ratio.py` holds `SPEC` and a docstring of a first sentence and the paragraphs `Why:`, `Source:` and
`Not when:`. A file is imported only when a profile other than `observe`, the configuration or a question asks for it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from moetuned.decide.tuning_plan import choose, plan
from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import read_for_plan
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.tunable import Manual, PlannedStep, Tunable, TunableSpec

_SYSCTL = "tuning.sysctl."
_PARAGRAPHS = {"why": "Why:", "source": "Source:", "not_when": "Not when:"}


def module_names() -> tuple[str, ...]:
    """Names of all tunables' files, without importing any."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(module_name: str) -> Tunable:
    """The tunable in `moetuned/tunables/<module_name>.py`. Raises ModuleNotFoundError."""
    module = importlib.import_module(f"{__name__}.{module_name}")
    spec: TunableSpec = module.SPEC
    return Tunable(spec, parse_manual(module.__doc__ or ""))


def parse_manual(docstring: str) -> Manual:
    """The manual entry in a module's docstring; a paragraph that is missing is empty."""
    found = dict.fromkeys(_PARAGRAPHS, "")
    summary = ""
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        text = " ".join(paragraph.split())
        for field, heading in _PARAGRAPHS.items():
            if text.startswith(heading):
                found[field] = text.removeprefix(heading).strip()
                break
        else:
            summary = summary or text
    return Manual(summary=summary, **found)


def find(key: str) -> Tunable | None:
    """The tunable an administrator calls `key`: vm.dirty_ratio, its twin vm.dirty_bytes, thp, or a configuration key."""
    by_name = key.replace(".", "_").replace("-", "_")
    names = module_names()
    for name in [by_name] if by_name in names else names:
        tunable = load(name)
        spec = tunable.spec
        called = {name, spec.name, spec.config_key, spec.config_key.removeprefix("tuning.")}
        if spec.twin is not None:
            called |= {spec.twin.name, f"tuning.sysctl.{spec.twin.name}"}
        if key in called:
            return tunable
    return None


def for_tuning(tuning: Tuning) -> tuple[Tunable, ...]:
    """The tunables a configuration may touch: none for an `observe` without overlay, else by name."""
    if tuning.profile is not Profile.OBSERVE:
        return tuple(load(name) for name in module_names())
    keys = [*tuning.sysctl, *(["tuning.thp"] if tuning.thp is not None else [])]
    found = {tunable.spec.name: tunable for key in keys if (tunable := find(key)) is not None}
    return tuple(found[name] for name in sorted(found))


def plan_tuning(fs: HostFS, tuning: Tuning) -> tuple[tuple[PlannedStep, ...], tuple[str, ...]]:
    """Steps that make the machine as `tuning` wants it, and the problems of the configuration (nothing to apply then).

    Reads the present values, changes nothing. Each problem is one sentence that names the key.
    """
    wanted, problems = choose(tuning, tuple(tunable.spec for tunable in for_tuning(tuning)))
    readings = {item.spec.name: read_for_plan(fs, item.spec.place) for item in wanted}
    return plan(tuning.profile, wanted, readings), problems


def known_sysctls() -> frozenset[str]:
    """Every key that `tuning.sysctl` may hold: the names of the tunables that are sysctls, both names of a pair."""
    specs = [load(name).spec for name in module_names()]
    keys = {spec.config_key for spec in specs if spec.config_key.startswith(_SYSCTL)}
    twins = {spec.twin.name for spec in specs if spec.twin is not None}
    return frozenset({key.removeprefix(_SYSCTL) for key in keys} | twins)
