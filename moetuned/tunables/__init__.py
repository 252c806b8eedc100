"""Kernel settings moetuned may change, one file each, found by name; a file's docstring is its manual entry.

A file `vm_dirty_ratio.py` holds `SPEC` and a docstring of a first sentence and the paragraphs `Why:`, `Source:`,
`Not when:` and, where there is one, `Side effect:`. A file is imported only when a profile other than `observe`, the configuration or a question asks for it.
What every device has for itself (`SPEC.per_device`) also has `instances(fs, models, device_of)`, which finds them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence

import msgspec

from moetuned.decide.tuning_plan import choose, plan
from moetuned.host.block_devices import device_number
from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import read_for_plan
from moetuned.parse.config_problem import Problem
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.tunable import Manual, PlannedStep, Reading, Tunable, TunableSpec

_SYSCTL = "tuning.sysctl."
_PARAGRAPHS = {"why": "Why:", "source": "Source:", "not_when": "Not when:", "side_effect": "Side effect:"}


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
    """The tunable an administrator calls `key`: vm.dirty_ratio, its twin vm.dirty_bytes, thp, or a configuration key.

    A setting of one device (`read_ahead_kb vda`) is found by its own name too.
    """
    by_name = key.replace(".", "_").replace("-", "_")
    names = module_names()
    for name in [by_name] if by_name in names else names:
        tunable = load(name)
        spec = tunable.spec
        called = {name, spec.name, spec.config_key, spec.config_key.removeprefix("tuning.")}
        if spec.twin is not None:
            called |= {spec.twin.name, f"tuning.sysctl.{spec.twin.name}"}
        if key in called or (spec.per_device and key.startswith(f"{spec.name} ")):
            return tunable
    return None


def for_tuning(tuning: Tuning) -> tuple[Tunable, ...]:
    """The tunables a configuration may touch: none for an `observe` without overlay, else by name."""
    if tuning.profile is not Profile.OBSERVE:
        return tuple(load(name) for name in module_names())
    keys = [*tuning.sysctl, *(f"tuning.{key}" for key in ("thp", "read_ahead") if getattr(tuning, key) is not None)]
    found = {tunable.spec.name: tunable for key in keys if (tunable := find(key)) is not None}
    return tuple(found[name] for name in sorted(found))


def changes_nothing(tuning: Tuning) -> bool:
    """Whether a configuration asks for no setting at all: an `observe` without overlay."""
    return tuning.profile is Profile.OBSERVE and not tuning.sysctl and tuning.thp is None and tuning.read_ahead is None


def models_of(config: Config) -> tuple[str, ...]:
    """The model files that the configuration names, each once."""
    return tuple(dict.fromkeys(backend.model for backend in config.backends if backend.model is not None))


def instances(
    fs: HostFS,
    tunable: Tunable,
    models: Sequence[str],
    device_of: Callable[[str], tuple[int, int]] = device_number,
) -> tuple[TunableSpec, ...]:
    """The settings that a tunable stands for: itself, or one for each device under `models`."""
    if not tunable.spec.per_device:
        return (tunable.spec,)
    module = importlib.import_module(f"{__name__}.{tunable.spec.name}")
    found: tuple[TunableSpec, ...] = module.instances(fs, models, device_of)
    return found


def plan_tuning(
    fs: HostFS,
    tuning: Tuning,
    models: Sequence[str] = (),
    device_of: Callable[[str], tuple[int, int]] = device_number,
) -> tuple[tuple[PlannedStep, ...], tuple[str, ...]]:
    """Steps that make the machine as `tuning` wants it, and the problems of the configuration (nothing to apply then).

    `models` are the files whose devices are set, `device_of` gives the device number of one. Reads the present values,
    changes nothing. Each problem is one sentence that names the key.
    """
    specs = [spec for tunable in for_tuning(tuning) for spec in instances(fs, tunable, models, device_of)]
    wanted, problems = choose(tuning, specs)
    return plan(tuning.profile, wanted, {item.spec.name: read_instance(fs, item.spec) for item in wanted}), problems


def read_instance(fs: HostFS, spec: TunableSpec) -> Reading:
    """The value in force; unknown, with the reason, where it is not known where the setting is."""
    return read_for_plan(fs, spec.place) if spec.unknown is None else Reading(None, unknown=spec.unknown)


def check_tuning(config: Config) -> Iterator[Problem]:
    """Problems of the values under `tuning`: errors for what the kernel refuses, warnings for what is of no use.

    Keys that no tunable has are left out; `parse.config_check` says those.
    """
    known = known_sysctls()
    tuning = config.tuning
    sysctl = {key: value for key, value in tuning.sysctl.items() if key in known}
    if sysctl != tuning.sysctl:
        tuning = msgspec.structs.replace(tuning, sysctl=sysctl)
    if changes_nothing(tuning):
        return
    specs = [tunable.spec for tunable in for_tuning(tuning)]
    wanted, problems = choose(tuning, specs)
    for problem in problems:
        path, _, hint = problem.partition(": ")
        yield Problem("", path, None, hint)
    for item in wanted:
        highest = item.spec.useful_highest
        if highest is not None and item.asked_by == item.spec.config_key and int(item.cell.value) > highest:
            hint = f"the kernel takes it, but more than {highest} is of no use"
            yield Problem("", item.spec.config_key, item.cell.value, hint, severity="warning")


def known_sysctls() -> frozenset[str]:
    """Every key that `tuning.sysctl` may hold: the names of the tunables that are sysctls, both names of a pair."""
    specs = [load(name).spec for name in module_names()]
    keys = {spec.config_key for spec in specs if spec.config_key.startswith(_SYSCTL)}
    twins = {spec.twin.name for spec in specs if spec.twin is not None}
    return frozenset({key.removeprefix(_SYSCTL) for key in keys} | twins)
