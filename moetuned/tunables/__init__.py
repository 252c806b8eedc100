"""Kernel settings moetuned may change, one file each, found by name; a file's docstring is its manual entry.

A file `vm_dirty_ratio.py` holds `SPEC` and a docstring of a first sentence and the paragraphs `Why:`, `Source:`,
`Risk:`, `Not when:` and, where there is one, `Side effect:` and `Computed:`. A file is imported only when a profile other than `observe`, the
configuration or a question asks for it. What depends on the machine also has `instances(fs, targets, device_of)`: the settings it
stands for here, with their values computed; and `warn(value)` gives what is to be said of a value that a configuration asks for.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType

import msgspec

from moetuned.decide.tuning_plan import choose, plan
from moetuned.host.block_devices import device_number
from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import read_for_plan
from moetuned.parse.config_problem import Problem
from moetuned.parse.config_values import overlay_of
from moetuned.parse.kernel_command_line import decided_settings
from moetuned.parse.manual_entry import manual_entry
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.tunable import Bound, Cell, Manual, PlannedStep, Reading, Targets, Tunable, TunableSpec, Wanted

_SYSCTL = "tuning.sysctl."
_PARAGRAPHS = {
    "why": "Why:",
    "risk": "Risk:",
    "source": "Source:",
    "not_when": "Not when:",
    "side_effect": "Side effect:",
    "computed": "Computed:",
}


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
    summary, found = manual_entry(docstring, _PARAGRAPHS)
    return Manual(summary=summary, **found)


def find(key: str) -> Tunable | None:
    """The tunable an administrator calls `key`: vm.dirty_ratio, its twin vm.dirty_bytes, thp, or a configuration key.

    A setting of one device (`read_ahead_kb vda`) is found by its own name too.
    """
    by_name = key.removeprefix(_SYSCTL).replace(".", "_").replace("-", "_")
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
    found = {tunable.spec.name: tunable for key, _ in overlay_of(tuning) if (tunable := find(key)) is not None}
    return tuple(found[name] for name in sorted(found))


def changes_nothing(tuning: Tuning) -> bool:
    """Whether a configuration asks for no setting at all: an `observe` without overlay."""
    return tuning.profile is Profile.OBSERVE and not overlay_of(tuning)


def instances(
    fs: HostFS,
    tunable: Tunable,
    targets: Targets,
    device_of: Callable[[str], tuple[int, int]] = device_number,
) -> tuple[TunableSpec, ...]:
    """The settings that a tunable stands for here: itself, with a computed value where it has one, or one for each device."""
    module = _module(tunable.spec)
    if not hasattr(module, "instances"):
        return (tunable.spec,)
    found: tuple[TunableSpec, ...] = module.instances(fs, targets, device_of)
    return found


def manual_of(spec: TunableSpec) -> Manual:
    """The manual entry of a setting that `instances` gave."""
    return load(_module_of(spec)).manual


def _module(spec: TunableSpec) -> ModuleType:
    return importlib.import_module(f"{__name__}.{_module_of(spec)}")


def _module_of(spec: TunableSpec) -> str:
    """A setting of one device is called `read_ahead_kb vda`."""
    return spec.name.partition(" ")[0].replace(".", "_").replace("-", "_")


def plan_tuning(
    fs: HostFS,
    tuning: Tuning,
    targets: Targets = Targets(),  # noqa: B008  frozen
    device_of: Callable[[str], tuple[int, int]] = device_number,
    originals: Mapping[str, Cell] | None = None,
) -> tuple[tuple[PlannedStep, ...], tuple[str, ...]]:
    """Steps that make the machine as `tuning` wants it, and the problems of the configuration (nothing to apply then).

    `targets` are the files whose devices are set and the cgroups of backends, `device_of` gives the device number of a file,
    `originals` what settings that are ours already were before. Reads the present values, changes nothing. Each problem is
    one sentence that names the key.
    """
    targets = msgspec.structs.replace(targets, profile=tuning.profile.value)
    specs = [spec for tunable in for_tuning(tuning) for spec in instances(fs, tunable, targets, device_of)]
    chosen, problems = choose(tuning, specs)
    # What changes other settings along with itself goes first, so that one of those that is wanted too stands at the end.
    wanted = sorted(chosen, key=lambda item: (not item.spec.side_effects, item.spec.name))
    readings = {item.spec.name: read_instance(fs, item.spec) for item in wanted}
    return plan(tuning.profile, wanted, readings, _decided(fs), originals), problems


def _decided(fs: HostFS) -> dict[str, str]:
    """Files of settings to the words of the kernel command line that decide them; none where it cannot be read."""
    try:
        command_line = fs.read_text("/proc/cmdline")
    except OSError:
        return {}
    return {path: decided.words for path, decided in decided_settings(command_line).items()}


def read_instance(fs: HostFS, spec: TunableSpec) -> Reading:
    """The value in force; unknown, with the reason, where it is not known where the setting is."""
    return Reading(None, unknown=spec.skip) if "*" in spec.place.path else read_for_plan(fs, spec.place)


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
    if not problems:
        yield from _dirty_pair(wanted)
    for item in wanted:
        warning = None if item.by_profile else _warning(item)
        if warning is not None:
            yield Problem("", item.asked_by, item.cell.value, warning, severity="warning")


def _dirty_pair(wanted: Iterable[Wanted]) -> Iterator[Problem]:
    """A warning where writing in the background would not begin before writers must write themselves, if the configuration says so.

    The kernel then begins at half of the other limit (domain_dirty_limits in mm/page-writeback.c).
    """
    found = {item.spec.name: item for item in wanted}
    early, late = found.get("vm.dirty_background_ratio"), found.get("vm.dirty_ratio")
    if early is None or late is None or (early.by_profile and late.by_profile):
        return
    same_unit = early.cell.path.endswith("_ratio") == late.cell.path.endswith("_ratio")
    if same_unit and int(late.cell.value) and int(early.cell.value) >= int(late.cell.value):
        blamed, other = (early, late) if not early.by_profile else (late, early)
        unit = late.cell.path.rpartition("/")[2]
        hint = (
            f"the background limit must be less than vm.{unit} ({other.asked_by}: {other.cell.value}), or the kernel takes half of that"
            if blamed is early
            else f"must be more than the background limit ({other.asked_by}: {other.cell.value}), or the kernel takes half for that"
        )
        yield Problem("", blamed.asked_by, blamed.cell.value, hint, severity="warning")


def _warning(item: Wanted) -> str | None:
    """What is to be said of a value that the kernel takes; a tunable's file may say more with `warn(cell)`."""
    spec = item.spec
    own_value = item.cell.path == spec.place.path and item.bound is not Bound.AT_MOST
    if spec.useful_highest is not None and own_value and int(item.cell.value) > spec.useful_highest:
        return f"the kernel takes it, but more than {spec.useful_highest} is of no use"
    warn: Callable[[str], str | None] | None = getattr(_module(spec), "warn", None)
    return warn(item.cell.value) if warn is not None and own_value else None


def known_sysctls() -> frozenset[str]:
    """Every key that `tuning.sysctl` may hold: the names of the tunables that are sysctls, both names of a pair."""
    specs = [load(name).spec for name in module_names()]
    keys = {spec.config_key for spec in specs if spec.config_key.startswith(_SYSCTL)}
    twins = {spec.twin.name for spec in specs if spec.twin is not None}
    return frozenset({key.removeprefix(_SYSCTL) for key in keys} | twins)
